package etcdlock

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// lease is one of the cluster's, which many holds and places share. All fields
// but the first two are under the pool's lock.
type lease struct {
	id  clientv3.LeaseID
	ttl int64 // seconds, as granted
	// sent is when the latest answered proof was sent that the lease lives: it
	// does so, with all that hangs on it, for ttl from then at least.
	sent driver.Instant
	dead bool
}

func (l *lease) window() time.Duration { return time.Duration(l.ttl) * time.Second }

// seconds rounds up to what the cluster counts in.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// pool has a lease for each TTL that is used. Nobody keeps one alive for its own
// sake: renewals and heartbeats do, for what hangs on it.
type pool struct {
	s      *store
	client pb.LeaseClient

	mu     sync.Mutex
	leases map[int64]*lease
	making map[int64]*making
	tombs  *lease
}

// making is a lease on its way, which all wait for who want it.
type making struct {
	done chan struct{}
	l    *lease
	err  error
}

func (p *pool) init(s *store) {
	p.s, p.client = s, pb.NewLeaseClient(s.client.ActiveConnection())
	p.leases, p.making = map[int64]*lease{}, map[int64]*making{}
}

// grant has a lease of its own made.
func (p *pool) grant(ctx context.Context, ttl int64) (*lease, error) {
	if err := p.s.ready(ctx); err != nil {
		return nil, err
	}
	sent := driver.Now()
	answer, err := p.client.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl}, grpc.WaitForReady(false))
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	return &lease{id: clientv3.LeaseID(answer.ID), ttl: answer.TTL, sent: sent}, nil
}

// at returns the pool's lease for a TTL, nil if there is none that surely lives.
func (p *pool) at(ttl time.Duration) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.leases[seconds(ttl)]
	if l == nil || l.dead || driver.Now() >= l.sent.Add(l.window()*9/10) {
		return nil
	}
	return l
}

// get returns a lease for a TTL, of which a proof is at most age old if age is
// positive.
func (p *pool) get(ctx context.Context, ttl, age time.Duration) (*lease, error) {
	l := p.at(ttl)
	if l == nil {
		return p.make(ctx, seconds(ttl))
	}
	if age > 0 && p.age(l) > age {
		if err := p.prove(ctx, l, age); err != nil || p.isDead(l) {
			return p.make(ctx, seconds(ttl))
		}
	}
	return l, nil
}

func (p *pool) make(ctx context.Context, ttl int64) (*lease, error) {
	p.mu.Lock()
	m := p.making[ttl]
	if m == nil {
		m = &making{done: make(chan struct{})}
		p.making[ttl] = m
		p.s.wg.Go(func() { p.fill(m, ttl) })
	}
	p.mu.Unlock()
	select {
	case <-m.done:
		return m.l, m.err
	case <-ctx.Done():
		return nil, notSent(ctx.Err())
	}
}

// fill makes the lease, whoever of those who want it gives up.
func (p *pool) fill(m *making, ttl int64) {
	ctx, cancel := context.WithTimeout(p.s.life, setUp)
	defer cancel()
	m.l, m.err = p.grant(ctx, ttl)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.making, ttl)
	if m.err == nil {
		p.leases[ttl] = m.l
	}
	close(m.done)
}

// tombLease is what tombstones hang on: each stands for settle at least.
func (p *pool) tombLease(ctx context.Context) (*lease, error) {
	p.mu.Lock()
	l := p.tombs
	p.mu.Unlock()
	if l != nil && p.age(l) < l.window()-settle {
		return l, nil
	}
	l, err := p.grant(ctx, 3*seconds(settle))
	if err == nil {
		p.mu.Lock()
		p.tombs = l
		p.mu.Unlock()
	}
	return l, err
}

func (p *pool) dropTombs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tombs = nil
}

// died forgets a lease that the cluster does not know any more.
func (p *pool) died(l *lease) {
	p.mu.Lock()
	was := l.dead
	l.dead = true
	for ttl, other := range p.leases {
		if other == l {
			delete(p.leases, ttl)
		}
	}
	if p.tombs == l {
		p.tombs = nil
	}
	p.mu.Unlock()
	if !was {
		p.s.book.leaseDied(l)
	}
}

func (p *pool) age(l *lease) time.Duration { return driver.Now().Sub(p.sentOf(l)) }

func (p *pool) sentOf(l *lease) driver.Instant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.sent
}

func (p *pool) isDead(l *lease) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.dead
}

// prove renews a lease, unless a proof is at most age old. Many who ask at the
// same time share one. A lease that the cluster does not know is dead then,
// without an error.
func (p *pool) prove(ctx context.Context, l *lease, age time.Duration) error {
	if p.age(l) <= age || p.isDead(l) {
		return nil
	}
	sent, ttl, err := p.s.pulse.beat(ctx, l.id)
	switch {
	case err != nil:
		return err
	case ttl <= 0:
		p.died(l)
	default:
		p.mu.Lock()
		if sent > l.sent {
			l.sent = sent
		}
		if l.ttl == 0 {
			l.ttl = ttl
		}
		p.mu.Unlock()
	}
	return nil
}
