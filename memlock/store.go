package memlock

import (
	"context"
	"iter"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxBatch is as large as it would be on a real server.
const maxBatch = 256

// store is one client of a server.
type store struct {
	server  *Server
	deliver func(driver.Signal)

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // signals on their way
}

var (
	_ driver.Queuer    = (*store)(nil)
	_ driver.Batcher   = (*store)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Lister    = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
	_ driver.Watcher   = (*store)(nil)
)

// New makes a store of its own server.
func New() driver.Store { return NewServer().Store() }

// Store makes a client of the server. It implements all abilities of a lease
// store.
func (s *Server) Store() driver.Store { return &store{server: s} }

var shared = struct {
	sync.Mutex
	servers map[string]*Server
}{servers: map[string]*Server{}}

func init() { driver.Register("memory", open) }

func open(_ context.Context, u *url.URL, _ *driver.OpenOptions) (driver.Store, error) {
	if err := driver.NewParams(u).Done(); err != nil {
		return nil, err
	}
	shared.Lock()
	defer shared.Unlock()
	name := u.Host + u.Path + u.Opaque
	if shared.servers[name] == nil {
		shared.servers[name] = NewServer()
	}
	return shared.servers[name].Store(), nil
}

func (c *store) Properties() driver.Properties {
	return driver.Properties{
		Store: "memory", Class: driver.ClassB, Bound: driver.ByLease, Wait: driver.ByPlaces, Local: true, OneHost: true,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Shared: true, Permits: true, Handles: true, Break: true, List: true, Inspect: true, Value: true},
		Names:     driver.Names{MaxBytes: 1024},
	}
}

// step runs fn as the server's one atomic step.
func (c *store) step(fn func(s *Server, now time.Time)) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	fn(c.server, time.Now())
}

func (c *store) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	a := c.AcquireMany(ctx, []*driver.AcquireRequest{req})[0]
	return a.AcquireResult, a.Err
}

func (c *store) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	answers := make([]driver.AcquireAnswer, len(reqs))
	c.step(func(s *Server, now time.Time) {
		for i, req := range reqs {
			if answers[i].Err = ctx.Err(); answers[i].Err == nil {
				answers[i].AcquireResult, answers[i].Err = s.acquire(c, req, now)
			}
		}
	})
	return answers
}

func (c *store) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	results := make([]driver.RenewResult, len(reqs))
	c.step(func(s *Server, now time.Time) {
		for i := range reqs {
			if results[i].Err = ctx.Err(); results[i].Err == nil {
				results[i] = s.renew(&reqs[i], now)
			}
		}
	})
	return results
}

func (c *store) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	a := c.ReleaseMany(ctx, []*driver.ReleaseRequest{req})[0]
	return a.Released, a.Err
}

func (c *store) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	answers := make([]driver.ReleaseAnswer, len(reqs))
	c.step(func(s *Server, now time.Time) {
		for i, req := range reqs {
			if answers[i].Err = ctx.Err(); answers[i].Err == nil {
				answers[i].Released = s.release(req, now)
			}
		}
	})
	return answers
}

func (c *store) MaxBatch() int { return maxBatch }

func (c *store) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	results := make([]driver.BeatResult, len(places))
	c.step(func(s *Server, now time.Time) {
		for i, ref := range places {
			if results[i].Err = ctx.Err(); results[i].Err == nil {
				results[i] = s.beat(ref, now)
			}
		}
	})
	return results
}

func (c *store) Listen(deliver func(driver.Signal)) { c.deliver = deliver }

// tell sends a signal on a goroutine of its own, since the client may be in the
// middle of a call.
func (c *store) tell(sig driver.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.deliver != nil {
		c.wg.Go(func() { c.deliver(sig) })
	}
}

func (c *store) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	var r driver.Record
	c.step(func(s *Server, now time.Time) {
		e := s.entry(n)
		s.advance(e, now)
		r = e.record(now)
	})
	return r, ctx.Err()
}

func (c *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var records []driver.Record
		c.step(func(s *Server, now time.Time) {
			for _, e := range s.names {
				if s.advance(e, now); e.name.Prefix == prefix && s.names[e.name.Key] != nil {
					records = append(records, e.record(now))
				}
			}
		})
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(driver.Record{}, err)
		}
	}
}

func (e *entry) record(now time.Time) driver.Record {
	r := driver.Record{Name: e.name.Full, Mode: driver.Exclusive, Limit: e.limit}
	if e.limit > 0 {
		r.Mode = driver.Permits
	}
	for _, h := range e.holders {
		if h.mode == driver.Shared {
			r.Mode = driver.Shared
		}
		r.Holders = append(r.Holders, h.describe(now))
	}
	for _, w := range e.queue {
		r.Waiters = append(r.Waiters, driver.Waiter{Owner: w.req.Owner, Label: w.req.Label, Mode: w.req.Mode, Permits: w.req.N, Waited: now.Sub(w.since)})
	}
	return r
}

func (c *store) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	status := driver.NotHeld
	c.step(func(s *Server, now time.Time) {
		e := s.entry(req.Name)
		s.advance(e, now)
		for _, h := range e.holders {
			status = driver.Mismatch
			if req.Token != 0 && h.token == req.Token || req.Token == 0 && h.owner == req.Owner {
				status = s.breakHold(e, h, req, now)
				return
			}
		}
	})
	return status, nil
}

func (s *Server) breakHold(e *entry, h *holder, req *driver.BreakRequest, now time.Time) driver.BreakStatus {
	h.broken = req.Reason
	if !req.Force {
		h.client.tell(driver.Signal{Kind: driver.BrokenSignal, Owner: h.owner, Reason: req.Reason})
		return driver.Marked
	}
	h.expires = now
	h.client.tell(driver.Signal{Kind: driver.LostSignal, Owner: h.owner, Reason: req.Reason})
	s.advance(e, now)
	return driver.Freed
}

func (c *store) Classify(err error) driver.Kind { return driver.LocalKindOf(err) }

func (c *store) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}
