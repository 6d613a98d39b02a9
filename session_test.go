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

// session is a store whose grants live by one session, kept alive by the driver:
// what was sent last and answered is the proof of life of all.
type session struct {
	*plain
	proof   atomic.Int64 // an Instant
	deliver func(driver.Signal)
	// early, if set, makes the store say that a grant is lost before its answer
	// arrives.
	early atomic.Bool

	mu    sync.Mutex
	backs []driver.ReleaseRequest
}

func newSession(tb testing.TB, server *memlock.Server, ttl time.Duration) *session {
	tb.Helper()
	s := &session{plain: newPlain(tb, server)}
	s.change = func(p *driver.Properties) { p.Bound, p.MaxTTL = driver.ByConnection, ttl }
	s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
		res, err := s.inner.Acquire(ctx, req)
		res.Grant.Sent = driver.Instant(s.proof.Load())
		if res.Status == driver.Granted && s.early.CompareAndSwap(true, false) {
			s.signal(driver.Signal{Kind: driver.LostSignal, Owner: req.Owner})
		}
		return res, err
	}
	s.onRenew = func(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
		res := s.renewOne(ctx, req)
		res.Window, res.Sent = ttl, driver.Instant(s.proof.Load())
		return res
	}
	s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
		s.mu.Lock()
		s.backs = append(s.backs, *req)
		s.mu.Unlock()
		return s.inner.Release(ctx, req)
	}
	return s
}

func (s *session) Listen(deliver func(driver.Signal)) { s.deliver = deliver }

// beats is the answer to a proof of life that was sent so long ago.
func (s *session) beats(ago time.Duration) { s.proof.Store(int64(driver.Now().Add(-ago))) }

// signal says something from the driver's own goroutine, and waits until it is
// taken.
func (s *session) signal(sig driver.Signal) {
	var done sync.WaitGroup
	done.Go(func() { s.deliver(sig) })
	done.Wait()
}

// trusted is how long a lease is trusted yet.
func trusted(l *holdfast.Lease) time.Duration {
	deadline, _ := l.Deadline()
	return time.Until(deadline).Round(time.Millisecond)
}

// Trust counts from the session's proof of life, in a grant and in a renewal,
// however late or early that came.
func TestTrustFollowsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, trust = 30 * time.Second, 30*time.Second - 300*time.Millisecond - 600*time.Millisecond
		s := newSession(t, memlock.NewServer(), ttl)
		c := open(t, s, nil)
		s.beats(4 * time.Second)
		l := take(t, c, "x", nil)
		if left := trusted(l); left != trust-4*time.Second {
			t.Errorf("%v after the grant", left)
		}
		time.Sleep(3 * time.Second)
		if err := l.Renew(t.Context(), ttl); err != nil || trusted(l) != trust-7*time.Second {
			t.Errorf("%v after a renewal without a new proof (%v)", trusted(l), err)
		}
		s.beats(time.Second)
		if err := l.Renew(t.Context(), ttl); err != nil || trusted(l) != trust-time.Second {
			t.Errorf("%v after a renewal (%v)", trusted(l), err)
		}
		give(t, l)
	})
}

// A session that nobody answers any more ends the trust of all its leases,
// though renewals seem to succeed.
func TestSessionThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memlock.NewServer(), 3*time.Second)
		proof := s.onRenew
		s.onRenew = func(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
			time.Sleep(100 * time.Millisecond) // a round trip
			return proof(ctx, req)
		}
		c := open(t, s, nil)
		s.beats(0)
		start := time.Now()
		l := take(t, c, "x", nil)
		<-l.Context().Done()
		if took := time.Since(start); took > 2950*time.Millisecond {
			t.Errorf("trusted for %v", took)
		}
		want(t, context.Cause(l.Context()), holdfast.ErrLost)
	})
}

// A proof so old that nothing can be trusted: the grant goes back.
func TestGrantOfADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSession(t, server, 10*time.Second)
		c := open(t, s, nil)
		s.beats(11 * time.Second)
		_, err := c.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrUnavailable)
		synctest.Wait()
		free(t, server)
	})
}

// The session ends between a grant and its answer: the store says that the
// grant is lost before we know that we have it.
func TestLossBeforeTheGrantIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSession(t, server, 10*time.Second)
		c := open(t, s, nil)
		s.beats(0)
		s.early.Store(true)
		_, err := c.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrUnavailable)
		synctest.Wait()
		free(t, server)

		s.early.Store(true)
		l := take(t, c, "x", nil) // a second attempt's
		synctest.Wait()
		s.mu.Lock()
		n := len(s.backs)
		s.mu.Unlock()
		if n != 2 || !l.Valid() {
			t.Errorf("%d grants given back, valid %v", n, l.Valid())
		}
		give(t, l)
	})
}

// A LostSignal ends exactly the lease that it names, at once.
func TestLostSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memlock.NewServer(), 10*time.Second)
		var owner driver.Owner
		acquire := s.onAcquire
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			if req.Name.Full == "x" {
				owner = req.Owner
			}
			return acquire(ctx, req)
		}
		tale := &story{}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		s.beats(0)
		x, y := take(t, c, "x", nil), take(t, c, "y", nil)
		s.signal(driver.Signal{Kind: driver.LostSignal, Owner: owner})
		if x.Valid() || x.Context().Err() == nil || !y.Valid() {
			t.Errorf("x valid %v, y valid %v", x.Valid(), y.Valid())
		}
		want(t, x.Release(t.Context()), holdfast.ErrLost)
		synctest.Wait()
		tale.check(t, x.Token(), "acquired lost")
		give(t, y)
	})
}

// The store cannot be reached when a lease's trust ends, nor for long after; its
// session lives on all the while. The hold is given back when it is there again:
// nothing else would end it.
func TestHoldOutlivesItsTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		server := memlock.NewServer()
		s := newSession(t, server, time.Hour)
		c := open(t, s, nil)
		var away atomic.Bool
		release := s.onRelease
		s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
			if away.Load() {
				return false, &driver.Failure{Kind: driver.Unavailable, Err: context.DeadlineExceeded}
			}
			return release(ctx, req)
		}
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			long := *req
			long.TTL = time.Hour
			res, err := s.inner.Acquire(ctx, &long)
			res.Grant.Sent, res.Grant.Window = driver.Now(), req.TTL
			return res, err
		}
		lost := take(t, c, "lost", &holdfast.AcquireOptions{TTL: ttl, NoRenew: true})
		given := take(t, c, "given", &holdfast.AcquireOptions{TTL: ttl, NoRenew: true})
		away.Store(true)
		want(t, given.Release(t.Context()), holdfast.ErrUnavailable)
		<-lost.Context().Done()
		time.Sleep(10 * ttl)
		away.Store(false)
		time.Sleep(3 * time.Second) // the longest pause between two tries is 2 s
		for _, name := range []string{"lost", "given"} {
			l, err := open(t, newPlain(t, server), nil).TryAcquire(t.Context(), name, nil)
			if err != nil {
				t.Errorf("%s is still taken: %v", name, err)
				continue
			}
			give(t, l)
		}
	})
}
