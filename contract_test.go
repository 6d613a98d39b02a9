package holdfast_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// returns notes what a store is given back.
type returns struct {
	mu   sync.Mutex
	reqs []driver.ReleaseRequest
	at   []time.Time
}

func (r *returns) watch(s *plain) {
	s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
		r.mu.Lock()
		r.reqs, r.at = append(r.reqs, *req), append(r.at, time.Now())
		r.mu.Unlock()
		return s.inner.Release(ctx, req)
	}
}

// A grant that no store may give is refused and given back.
func TestGrantAgainstTheContract(t *testing.T) {
	for name, spoil := range map[string]func(*driver.Grant){
		"token":           func(g *driver.Grant) { g.Token = 1 << 55 },
		"no window":       func(g *driver.Grant) { g.Window = 0 },
		"negative window": func(g *driver.Grant) { g.Window = -time.Second },
	} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s, back := newPlain(t, server), &returns{}
			back.watch(s)
			var granted uint64
			s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
				res, err := s.inner.Acquire(ctx, req)
				granted = res.Grant.Token
				spoil(&res.Grant)
				return res, err
			}
			renamed := s.onRelease
			s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
				if r := *req; name == "token" {
					r.Token = granted
					return renamed(ctx, &r)
				}
				return renamed(ctx, req)
			}
			c := open(t, s, nil)
			for _, acquire := range []func(context.Context, string, *holdfast.AcquireOptions) (*holdfast.Lease, error){c.Acquire, c.TryAcquire} {
				start := time.Now()
				_, err := acquire(t.Context(), "x", nil)
				want(t, err, holdfast.ErrUnsupported)
				if took := time.Since(start); took != 0 {
					t.Errorf("%s: after %v", name, took)
				}
				synctest.Wait()
				free(t, server)
			}
			if len(back.reqs) != 2 {
				t.Errorf("%s: given back %d times", name, len(back.reqs))
			}
		})
	}
}

// A refused attempt that may have left parts in the store is abandoned; its
// caller learns that the name is held.
func TestLeftoverIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, back := newPlain(t, memlock.NewServer()), &returns{}
		back.watch(s)
		var owner driver.Owner
		s.onAcquire = func(_ context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			owner = req.Owner
			return driver.AcquireResult{Status: driver.Held, Leftover: true, Queue: driver.Queue{Holder: &driver.Holder{Label: "h"}}}, nil
		}
		c := open(t, s, nil)
		_, err := c.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrHeld)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(back.reqs) != 1 || back.reqs[0].Owner != owner || !back.reqs[0].Abandon || back.reqs[0].Token != 0 {
			t.Errorf("%+v", back.reqs)
		}
	})
}

// An attempt of unknown outcome is abandoned again and again for as long as a
// request may be late: what the store says, else the TTL.
func TestSettle(t *testing.T) {
	for settle, long := range map[time.Duration]time.Duration{0: 3 * time.Second, 20 * time.Second: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s, back := newPlain(t, server), &returns{}
			s.change = func(p *driver.Properties) { p.Settle = settle }
			back.watch(s)
			s.onAcquire = func(_ context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
				late := *req
				time.AfterFunc(long-long/10, func() { // when nobody believes in it any more, past a tombstone
					_, _ = s.inner.Acquire(t.Context(), &late)
				})
				return driver.AcquireResult{}, torn()
			}
			c := open(t, s, nil)
			_, err := c.TryAcquire(t.Context(), "x", &holdfast.AcquireOptions{TTL: 3 * time.Second})
			want(t, err, holdfast.ErrIndeterminate)
			time.Sleep(2 * long)
			synctest.Wait()
			last := back.at[len(back.at)-1].Sub(back.at[0])
			if last < long || last > long+long/4 || len(back.at) > 15 {
				t.Errorf("settle %v: abandoned %d times within %v", settle, len(back.at), last)
			}
			for _, r := range back.reqs {
				if !r.Abandon || r.Owner != back.reqs[0].Owner || r.Token != 0 {
					t.Errorf("%+v", r)
				}
			}
			free(t, server)
		})
	}
}

// Tokens that are final stay as they are, from grant to break, and nothing is
// handed over behind the store's back.
func TestFinalTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const high = 1 << 62
		server := memlock.NewServer()
		s := newPlain(t, server)
		s.change = func(p *driver.Properties) { p.FinalTokens = true }
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := s.inner.Acquire(ctx, req)
			if res.Grant.Token != 0 {
				res.Grant.Token |= high
			}
			return res, err
		}
		s.onRenew = func(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
			req.Token &^= high
			return s.renewOne(ctx, req)
		}
		releases := 0
		s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
			r := *req
			r.Token &^= high
			releases++
			return s.inner.Release(ctx, &r)
		}
		c := open(t, s, nil)
		held := take(t, c, "x", nil)
		if held.Token()&high == 0 || held.Token()>>55 != high>>55 {
			t.Errorf("token %x", held.Token())
		}
		got := acquireAll(t, c, 5, 10*time.Microsecond)
		give(t, held)
		last := held.Token()
		for range 5 {
			l := <-got
			if l.Token() <= last {
				t.Errorf("token %x after %x", l.Token(), last)
			}
			last = l.Token()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if releases != 6 {
			t.Errorf("%d releases of 6 leases", releases)
		}
	})
}

// detaching is a store whose grants share a session that one can leave.
type detaching struct {
	*plain
	asked []driver.RenewRequest
	fails error
	takes time.Duration
	now   atomic.Int64 // detached now
}

func (d *detaching) Detach(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
	d.now.Add(1)
	defer d.now.Add(-1)
	d.asked = append(d.asked, r)
	time.Sleep(d.takes)
	if d.fails != nil {
		return driver.RenewResult{Err: d.fails}
	}
	return d.renewOne(ctx, r)
}

func TestHandleDetaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		d, back := &detaching{plain: newPlain(t, server)}, &returns{}
		back.watch(d.plain)
		c := open(t, d, nil)
		l := take(t, c, "x", &holdfast.AcquireOptions{TTL: 20 * time.Second})
		time.Sleep(5 * time.Second)
		text, err := l.Handle()
		if err != nil || len(d.asked) != 1 || d.asked[0].Token != l.Token()>>8 || d.asked[0].TTL != 20*time.Second || len(back.reqs) != 0 {
			t.Fatalf("%v: detached %+v, released %+v", err, d.asked, back.reqs)
		}
		time.Sleep(19 * time.Second)
		adopted, err := newSpy(t, server).client(t).Adopt(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		give(t, adopted)

		d.fails = torn()
		l = take(t, c, "x", nil)
		_, err = l.Handle()
		want(t, err, holdfast.ErrLost)
		synctest.Wait()
		free(t, server)
		if l.Valid() || len(back.reqs) != 1 || back.reqs[0].Token != l.Token()>>8 {
			t.Errorf("valid %v, given back %+v", l.Valid(), back.reqs)
		}
	})
}

// Close waits for a handle that is being made, and for what must be given back if
// that fails.
func TestCloseWaitsForAHandle(t *testing.T) {
	for _, fails := range []error{nil, torn()} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			d := &detaching{plain: newPlain(t, server), takes: time.Second, fails: fails}
			c := open(t, d, nil)
			l := take(t, c, "x", nil)
			made := make(chan error, 1)
			go func() {
				_, err := l.Handle()
				made <- err
			}()
			synctest.Wait()
			if err := c.Close(); err != nil || d.now.Load() != 0 {
				t.Errorf("closed (%v) while %d are detached", err, d.now.Load())
			}
			if err := <-made; fails != nil {
				want(t, err, holdfast.ErrLost)
				free(t, server)
			} else if err != nil {
				t.Error(err)
			}
			_, err := l.Handle()
			want(t, err, holdfast.ErrClosed)
		})
	}
}
