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

// parking is a store that parks calls: the kernel's or a server's own wait.
type parking struct {
	*plain
	attempts, renews times
	parked           atomic.Int64 // calls parked now
	room             int64        // how many may be
	deaf             time.Duration
	age              time.Duration // how old the proof of life of a parked grant is
	onBlock          func() error  // looks at the store while a call is parked

	mu     sync.Mutex
	blocks []driver.AcquireRequest
	ends   []driver.ReleaseRequest // abandoned
}

func newParking(tb testing.TB, server *memlock.Server) *parking {
	tb.Helper()
	s := &parking{plain: newPlain(tb, server), room: 100}
	s.change = func(p *driver.Properties) { p.Wait, p.Bound = driver.ByParking, driver.ByConnection }
	s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
		s.attempts.note()
		return s.inner.Acquire(ctx, req)
	}
	s.onRenew = func(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
		s.renews.note()
		return s.renewOne(ctx, req)
	}
	s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
		if req.Abandon {
			s.mu.Lock()
			s.ends = append(s.ends, *req)
			s.mu.Unlock()
		}
		return s.inner.Release(ctx, req)
	}
	return s
}

func (s *parking) Block(ctx context.Context, req *driver.AcquireRequest) (driver.Grant, error) {
	if s.parked.Add(1) > s.room {
		s.parked.Add(-1)
		return driver.Grant{}, driver.ErrNoRoom
	}
	defer s.parked.Add(-1)
	s.mu.Lock()
	s.blocks = append(s.blocks, *req)
	s.mu.Unlock()
	for {
		if s.onBlock != nil {
			if err := s.onBlock(); err != nil {
				return driver.Grant{}, err
			}
		}
		sent := driver.Now()
		res, err := s.inner.Acquire(ctx, req)
		if err == nil && res.Status == driver.Granted {
			res.Grant.Sent = sent.Add(-s.age)
			return res.Grant, nil
		}
		select {
		case <-ctx.Done():
			time.Sleep(s.deaf)
			return driver.Grant{}, torn()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Many waiters of a name are one parked call, and the grant is used as it is.
func TestParking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		s := newParking(t, server)
		c := open(t, s, nil)
		var outs []<-chan outcome
		for range 10 {
			outs = append(outs, later(t.Context(), c, "x", nil))
			synctest.Wait() // in line before the next comes
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.parked.Load(); n != 1 || len(s.blocks) != 1 {
			t.Errorf("%d calls parked of %d", n, len(s.blocks))
		}
		attempts := len(s.attempts.pauses())
		give(t, held)
		for _, out := range outs {
			give(t, (<-out).lease)
		}
		if n := len(s.attempts.pauses()); n != attempts {
			t.Errorf("%d attempts beside the parked calls", n-attempts)
		}
	})
}

// When the first waiter leaves, the next may want something else: the parked
// call ends and another begins.
func TestParkingFollowsWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		s := newParking(t, server)
		s.deaf = 300 * time.Millisecond
		c := open(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		first := later(ctx, c, "x", nil)
		synctest.Wait()
		second := later(t.Context(), c, "x", &holdfast.AcquireOptions{Mode: holdfast.Shared})
		time.Sleep(time.Second)
		start := time.Now()
		cancel()
		got := <-first
		if want(t, got.err, context.Canceled); got.at != start {
			t.Errorf("the cancelled one returned after %v: the parked call held it up", got.at.Sub(start))
		}
		time.Sleep(time.Second)
		s.mu.Lock()
		if len(s.blocks) != 2 || s.blocks[1].Mode != holdfast.Shared || s.blocks[1].Owner == s.blocks[0].Owner {
			t.Errorf("parked: %+v", s.blocks)
		}
		if len(s.ends) == 0 || s.ends[0].Owner != s.blocks[0].Owner {
			t.Errorf("abandoned: %+v", s.ends)
		}
		s.mu.Unlock()
		give(t, held)
		got = <-second
		if got.err != nil || got.lease.Mode() != holdfast.Shared {
			t.Fatalf("%+v", got)
		}
		give(t, got.lease)
		free(t, server)
	})
}

// Nobody stays parked when all who waited have left.
func TestParkingEndsWithItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		s := newParking(t, server)
		c := open(t, s, nil)
		start := time.Now()
		got := <-later(t.Context(), c, "x", &holdfast.AcquireOptions{Wait: 5 * time.Second})
		want(t, got.err, holdfast.ErrTimeout, holdfast.ErrHeld)
		if took := got.at.Sub(start); took > 5500*time.Millisecond {
			t.Errorf("after %v", took)
		}
		synctest.Wait()
		if n := s.parked.Load(); n != 0 {
			t.Errorf("%d calls are parked yet", n)
		}
		give(t, held)
		time.Sleep(time.Second)
		free(t, server)
	})
}

// Without room for one more parked call the name is polled.
func TestParkingWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		other := newSpy(t, server).client(t)
		x, y := take(t, other, "x", nil), take(t, other, "y", nil)
		s := newParking(t, server)
		s.room = 1
		c := open(t, s, nil)
		first := later(t.Context(), c, "x", nil)
		time.Sleep(time.Second)
		second := later(t.Context(), c, "y", nil)
		before := len(s.attempts.pauses())
		time.Sleep(30 * time.Second)
		if n := len(s.attempts.pauses()) - before; n < 30 || n > 80 {
			t.Errorf("%d attempts in 30 s", n)
		}
		start := time.Now()
		give(t, y)
		got := <-second
		if took := got.at.Sub(start); took > time.Second {
			t.Errorf("granted %v after the release", took)
		}
		give(t, got.lease)
		give(t, x)
		give(t, (<-first).lease)
	})
}

// A parked grant whose proof of life is old, even past its trust, is renewed
// before it is used, and not given back.
func TestParkedGrantWithAnOldProof(t *testing.T) {
	for age, claims := range map[time.Duration]int{0: 0, 5 * time.Second: 0, 15 * time.Second: 1, 40 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			held := take(t, newSpy(t, server).client(t), "x", nil)
			s := newParking(t, server)
			s.age = age
			c := open(t, s, nil)
			out := later(t.Context(), c, "x", nil)
			time.Sleep(time.Minute)
			give(t, held)
			got := <-out
			if got.err != nil {
				t.Fatal(got.err)
			}
			renewals := 0
			if s.renews.at != nil {
				renewals = 1 + len(s.renews.pauses())
			}
			deadline, _ := got.lease.Deadline()
			left := time.Until(deadline)
			wantLeft := 29 * time.Second
			if claims == 0 {
				wantLeft -= age
			}
			if renewals != claims || len(s.blocks) != 1 || left < wantLeft-time.Second || left > wantLeft+time.Second {
				t.Errorf("age %v: %d renewals, %d parked calls, %v left", age, renewals, len(s.blocks), left)
			}
			give(t, got.lease)
		})
	}
}
