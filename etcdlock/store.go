package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxBatch keeps a transaction within the 128 operations that a server takes.
	maxBatch = 64
	// maxKey is more than any prefix and name need, so that keys are never hashed.
	maxKey = 2048
	// settle is how long a request may still reach the server after it was given up.
	settle = 10 * time.Second
	// longestTTL is holdfast's own bound, far below the server's.
	longestTTL = 24 * time.Hour
)

// Options are for what is to come; there are none yet.
type Options struct{}

// store is one client of the cluster.
type store struct {
	client *clientv3.Client
	own    bool // made from a URL: closed by Close
	kv     clientv3.KV
	props  driver.Properties

	pool  pool
	pulse pulse
	book  book
	ears  ears

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // looks of the store's own accord
}

var (
	_ driver.Queuer    = (*store)(nil)
	_ driver.Mixer     = (*store)(nil)
	_ driver.Detacher  = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Lister    = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
	_ driver.Watcher   = (*store)(nil)
)

// setUp is how long New may ask the cluster about itself.
const setUp = 5 * time.Second

// defaultTTL is that of the lease which is granted ahead, if nobody says.
const defaultTTL = 30 * time.Second

// New makes a store over a client of the user's, which stays open when the
// store is closed. It asks the cluster for the shortest lease that it grants,
// and has one granted ahead. Wrappers of the client's KV, Lease and Watcher
// (package namespace) are not seen. opts may be nil.
func New(client *clientv3.Client, _ *Options) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUp)
	defer cancel()
	s, err := newStore(ctx, client, defaultTTL)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(ctx context.Context, client *clientv3.Client, ttl time.Duration) (*store, error) {
	s := &store{client: client}
	conn := client.ActiveConnection()
	s.kv = clientv3.NewKVFromKVClient(promptKV{pb.NewKVClient(conn)}, nil)
	s.life, s.end = context.WithCancel(context.Background())
	s.pool.init(s)
	s.pulse.init(s)
	s.book.init(s)
	s.ears.init(s)
	if err := s.probe(ctx, ttl); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// probe asks for the shortest lease, which is left to run out, and for the one
// that most locks will want.
func (s *store) probe(ctx context.Context, ttl time.Duration) error {
	shortest, err := s.pool.grant(ctx, 1)
	if err != nil {
		return err
	}
	if _, err = s.pool.get(ctx, ttl, 0); err != nil {
		return err
	}
	s.props = driver.Properties{
		Store: "etcd", Class: driver.ClassA, Bound: driver.ByLease, Wait: driver.ByPlaces,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Shared: true, Permits: true, Handles: true, Break: true, List: true, Inspect: true, Value: true},
		MinTTL:    shortest.window(), MaxTTL: longestTTL, Granularity: time.Second,
		Names: driver.Names{MaxBytes: maxKey, Portable: true}, Settle: settle,
	}
	return nil
}

func (s *store) Properties() driver.Properties { return s.props }

func (s *store) MaxBatch() int { return maxBatch }

func (s *store) Listen(deliver func(driver.Signal)) { s.ears.deliver = deliver }

// Close leaves the leases to run out: what still hangs on them is to stay, and
// without anything on it a lease is nothing.
func (s *store) Close() error {
	s.end()
	s.wg.Wait()
	if s.own {
		return s.client.Close()
	}
	return nil
}

// promptKV fails at once while no server is connected, as the client's own does
// not, and takes answers of any size.
type promptKV struct{ pb.KVClient }

var callOptions = []grpc.CallOption{grpc.WaitForReady(false), grpc.MaxCallRecvMsgSize(1 << 30)}

func (k promptKV) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return k.KVClient.Range(ctx, in, append(opts, callOptions...)...)
}

func (k promptKV) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return k.KVClient.Txn(ctx, in, append(opts, callOptions...)...)
}

// ready tells that a request can be sent. If it cannot, or ctx has ended, the
// request was surely not applied, which the error says.
func (s *store) ready(ctx context.Context) error {
	conn := s.client.ActiveConnection()
	for {
		if err := ctx.Err(); err != nil {
			return notSent(err)
		}
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure:
			conn.ResetConnectBackoff() // so that the next attempt is not late
			return unreachable
		case connectivity.Shutdown:
			return unreachable
		case connectivity.Connecting:
		}
		conn.WaitForStateChange(ctx, state)
	}
}

var unreachable = &driver.Failure{Kind: driver.Unavailable, Err: errors.New("etcd: no server can be reached")}

// notSent is the error of a request whose ctx ended before it left.
func notSent(err error) error {
	kind := driver.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		kind = driver.Unavailable
	}
	return &driver.Failure{Kind: kind, Err: err}
}

// commit sends a transaction once.
func (s *store) commit(ctx context.Context, t txn) (*clientv3.TxnResponse, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.kv.Txn(ctx).If(t.when...).Then(t.then...).Else(t.orElse...).Commit()
}

// txn is one step of the cluster.
type txn struct {
	when         []clientv3.Cmp
	then, orElse []clientv3.Op
}

func (t txn) op() clientv3.Op { return clientv3.OpTxn(t.when, t.then, t.orElse) }
