package etcdlock

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// pulse is the client's one stream of keep-alives. The client library has one
// too, which counts a lease's time from the answer instead of the request.
type pulse struct {
	s *store

	mu      sync.Mutex
	stream  pb.Lease_LeaseKeepAliveClient
	cancel  context.CancelFunc
	pending map[clientv3.LeaseID]*keepAlive
}

// keepAlive is one that is on its way.
type keepAlive struct {
	sent driver.Instant
	done chan struct{}
	ttl  int64
	err  error
}

var errPulse = errors.New("etcd: the stream of keep-alives broke")

func (p *pulse) init(s *store) { p.s, p.pending = s, map[clientv3.LeaseID]*keepAlive{} }

// beat keeps a lease alive, and tells when the request was sent and for how many
// seconds the lease lives since; 0 if there is none. Whoever asks for the same
// lease meanwhile shares it.
func (p *pulse) beat(ctx context.Context, id clientv3.LeaseID) (driver.Instant, int64, error) {
	if err := p.s.ready(ctx); err != nil {
		return 0, 0, err
	}
	k, err := p.send(id)
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-k.done:
		return k.sent, k.ttl, k.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.hangs(k)
		}
		return 0, 0, ctx.Err()
	}
}

func (p *pulse) send(id clientv3.LeaseID) (*keepAlive, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.pending[id]; k != nil {
		return k, nil
	}
	if p.stream == nil {
		if err := p.open(); err != nil {
			return nil, err
		}
	}
	k := &keepAlive{sent: driver.Now(), done: make(chan struct{})}
	p.pending[id] = k
	if err := p.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		p.fail(errPulse)
	}
	return k, nil
}

// open makes the stream; under mu.
func (p *pulse) open() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(p.s.life))
	stream, err := pb.NewLeaseClient(p.s.client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(false))
	if err != nil {
		cancel()
		return err
	}
	p.stream, p.cancel = stream, cancel
	p.s.wg.Go(func() { p.read(stream) })
	return nil
}

func (p *pulse) read(stream pb.Lease_LeaseKeepAliveClient) {
	for {
		answer, err := stream.Recv()
		p.mu.Lock()
		if p.stream != stream {
			p.mu.Unlock()
			return
		}
		if err != nil {
			p.fail(err)
			p.mu.Unlock()
			return
		}
		id := clientv3.LeaseID(answer.ID)
		if k := p.pending[id]; k != nil {
			delete(p.pending, id)
			k.ttl = answer.TTL
			close(k.done)
		}
		p.mu.Unlock()
	}
}

// hangs gives the stream up if a keep-alive is still not answered: the next one
// may reach another server.
func (p *pulse) hangs(k *keepAlive) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pending := range p.pending {
		if pending == k {
			p.fail(errPulse)
			return
		}
	}
}

// fail ends the stream and all that is on its way in it; under mu.
func (p *pulse) fail(err error) {
	p.cancel()
	p.stream = nil
	for id, k := range p.pending {
		delete(p.pending, id)
		k.err = err
		close(k.done)
	}
}
