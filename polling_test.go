package holdfast_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// times notes when something happened.
type times struct {
	mu sync.Mutex
	at []time.Time
}

func (s *times) note() {
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
}

func (s *times) pauses() (pauses []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.at); i++ {
		pauses = append(pauses, s.at[i].Sub(s.at[i-1]))
	}
	return pauses
}

// polled is a store that polls and counts attempts.
func polled(tb testing.TB, server *memlock.Server) (*plain, *times) {
	tb.Helper()
	s, attempts := newPlain(tb, server), &times{}
	s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
		if req.Queue {
			tb.Error("asked for a place on a store that has none")
		}
		attempts.note()
		return s.inner.Acquire(ctx, req)
	}
	return s, attempts
}

// The pauses double from 20 ms to 1 s, half of each by chance.
func TestPollingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		s, attempts := polled(t, server)
		out := later(t.Context(), open(t, s, nil), "x", nil)
		time.Sleep(time.Minute)
		give(t, held)
		give(t, (<-out).lease)
		pauses := attempts.pauses()
		if len(pauses) < 60 || len(pauses) > 125 {
			t.Fatalf("%d attempts in a minute", len(pauses))
		}
		different := map[time.Duration]bool{}
		for i, p := range pauses[1:] { // the first is between the call and those who serve it
			most := min(20*time.Millisecond<<min(i, 10), time.Second)
			if p < most/2 || p > most {
				t.Errorf("pause %d of %v, want %v to %v", i, p, most/2, most)
			}
			different[p] = true
		}
		if len(different) < 50 {
			t.Errorf("only %d different pauses: waiters would come in step", len(different))
		}
	})
}

// One process costs a polling store one waiter, however many wait in it.
func TestPollingCostsOneWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		take(t, newSpy(t, server).client(t), "x", nil)
		s, attempts := polled(t, server)
		c := open(t, s, nil)
		for range 100 {
			later(t.Context(), c, "x", nil)
		}
		time.Sleep(time.Minute)
		if n := len(attempts.pauses()); n > 225 { // each came with one attempt of its own at most
			t.Errorf("%d attempts", n)
		}
	})
}

// A waiter does not sleep on when its own process gave the name back.
func TestPollingWakesByItsOwnRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := polled(t, memlock.NewServer())
		c := open(t, s, nil)
		for range 20 {
			held := take(t, c, "x", nil)
			out := later(t.Context(), c, "x", nil)
			time.Sleep(10*time.Second + time.Millisecond)
			start := time.Now()
			give(t, held)
			got := <-out
			if took := got.at.Sub(start); took != 0 {
				t.Fatalf("granted %v after the release", took)
			}
			give(t, got.lease)
		}
	})
}

// A single attempt does not pass those of its process who wait, though the name
// is free; an unfair one does.
func TestTryDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		s, attempts := polled(t, server)
		c := open(t, s, nil)
		out := later(t.Context(), c, "x", nil)
		time.Sleep(10 * time.Second)
		give(t, held)
		before := len(attempts.pauses())
		_, err := c.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrHeld)
		if n := len(attempts.pauses()); n != before {
			t.Errorf("%d attempts", n-before)
		}
		l, err := c.TryAcquire(t.Context(), "x", &holdfast.AcquireOptions{Unfair: true})
		if err != nil {
			t.Fatal(err)
		}
		give(t, l)
		give(t, (<-out).lease)
	})
}

// While the store is down, a single attempt is told that, not that the name is
// held.
func TestTryBehindThoseWhoWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPlain(t, memlock.NewServer())
		s.onAcquire = func(context.Context, *driver.AcquireRequest) (driver.AcquireResult, error) {
			return driver.AcquireResult{}, down()
		}
		c := open(t, s, nil)
		later(t.Context(), c, "x", nil)
		time.Sleep(time.Second)
		_, err := c.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrUnavailable)
	})
}

// When a bounded wait runs out a last attempt finds what became free since the
// latest one.
func TestPollingMakesALastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			server := memlock.NewServer()
			held := take(t, newSpy(t, server).client(t), "x", nil)
			s, _ := polled(t, server)
			c := open(t, s, nil)
			start := time.Now()
			out := later(t.Context(), c, "x", &holdfast.AcquireOptions{Wait: 20 * time.Second})
			time.Sleep(20*time.Second - time.Microsecond)
			give(t, held)
			got := <-out
			if got.err != nil || got.at.Sub(start) > 20*time.Second {
				t.Fatalf("%v after %v", got.err, got.at.Sub(start))
			}
			give(t, got.lease)
		}
	})
}

// A bounded wait takes no longer than a tenth more, also on a store that hangs.
func TestBoundedWaitOnAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPlain(t, memlock.NewServer())
		s.onAcquire = func(ctx context.Context, _ *driver.AcquireRequest) (driver.AcquireResult, error) {
			<-ctx.Done()
			return driver.AcquireResult{}, torn()
		}
		c := open(t, s, nil)
		for _, wait := range []time.Duration{time.Nanosecond, 10 * time.Millisecond, 5 * time.Second} {
			start := time.Now()
			_, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{Wait: wait})
			want(t, err, holdfast.ErrTimeout)
			if took := time.Since(start); took > wait+max(wait/10, 50*time.Millisecond) {
				t.Errorf("a wait of %v took %v", wait, took)
			}
		}
	})
}
