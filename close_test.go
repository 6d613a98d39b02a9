package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Close gives thousands of holds back, on a store that takes its time.
func TestCloseReleasesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		s.remote = true
		s.onRelease = func() { time.Sleep(5 * time.Millisecond) }
		c := s.client(t)
		for i := range 4000 {
			if _, err := c.Acquire(t.Context(), strconv.Itoa(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for r, err := range newSpy(t, server).client(t).List(t.Context(), "") {
			t.Fatalf("left: %v %v", r, err)
		}
	})
}

// Close ends waits with ErrClosed and leases with ErrReleased, and a second
// Close answers as the first.
func TestCloseEndsWaitsAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		lease, err := c.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Acquire(t.Context(), "x", nil)
				waited <- err
			}()
		}
		synctest.Wait()
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-waited; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("the waiter got %v", err)
			}
		}
		if !errors.Is(context.Cause(lease.Context()), holdfast.ErrReleased) || lease.Valid() {
			t.Errorf("the lease ended with %v", context.Cause(lease.Context()))
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("release after close: %v", err)
		}
		if _, err := c.Acquire(t.Context(), "y", nil); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("acquire after close: %v", err)
		}
		if r, err := newSpy(t, server).client(t).Inspect(t.Context(), "x"); err != nil || len(r.Holders)+len(r.Waiters) > 0 {
			t.Errorf("left in the store: %v, %v", r, err)
		}
	})
}

// bound is a memory store that says it lives by its connection.
type bound struct{ *spy }

func (b bound) Properties() driver.Properties {
	p := b.spy.Properties()
	p.Bound = driver.ByConnection
	return p
}

// On a store bound to the connection MinHold is kept by us: Release returns,
// the hold is renewed on, and Close waits for it.
func TestMinHoldLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		s.remote = true
		c, err := holdfast.New(bound{s}, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := &holdfast.AcquireOptions{TTL: 2 * time.Second, MinHold: 20 * time.Second}
		lease, err := c.Acquire(t.Context(), "x", o)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := lease.Release(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("release took %v: %v", time.Since(start), err)
		}
		other := newSpy(t, server).client(t)
		for range 19 {
			if _, err := other.TryAcquire(t.Context(), "x", nil); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			time.Sleep(time.Second)
		}
		if err := c.Close(); err != nil || time.Since(start) < 20*time.Second {
			t.Errorf("closed after %v: %v", time.Since(start), err)
		}
		if _, err := other.TryAcquire(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
	})
}

// On a lease store the record itself keeps the name, also if we are gone.
func TestMinHoldIsKeptByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		start := time.Now()
		lease, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{TTL: time.Second, MinHold: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		next, err := newSpy(t, server).client(t).Acquire(t.Context(), "x", nil)
		if err != nil || time.Since(start) < 10*time.Second {
			t.Errorf("granted after %v: %v", time.Since(start), err)
		}
		if next != nil && next.Token() <= lease.Token() {
			t.Error("the token did not grow")
		}
	})
}

// Close does not wait for a user's loop over a list, nor for one that looks.
func TestCloseWithinList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		if _, err := c.Acquire(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		for _, err := range c.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Close does not wait until an attempt whose answer was lost can arrive no more,
// but names it in the log: it may hold the name until its TTL is over. One whose
// time has passed is not named.
func TestCloseNamesLateAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		s.onAcquire = func(context.Context, []*driver.AcquireRequest) error { return torn() }
		var log strings.Builder
		c := open(t, s, &holdfast.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, name := range []string{"past", "late"} {
			_, err := c.TryAcquire(t.Context(), name, &holdfast.AcquireOptions{TTL: 3 * time.Second})
			want(t, err, holdfast.ErrIndeterminate)
			if name == "past" {
				time.Sleep(4 * time.Second)
			}
		}
		time.Sleep(time.Second)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if told := log.String(); !strings.Contains(told, "late") || strings.Contains(told, "past") {
			t.Errorf("told %s", told)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("close took %v", took)
		}
	})
}

// What the store does not release within 5 s is named, each name once.
func TestCloseNamesUnansweredReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		c := open(t, &mute{spy: s, left: 1000}, nil)
		for _, name := range []string{"b", "a"} {
			_ = take(t, c, name, nil)
		}
		start := time.Now()
		err := c.Close()
		want(t, err, holdfast.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), `until it expires: "a", "b"`) {
			t.Errorf("told %v", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("close took %v", took)
		}
	})
}

// So it is when requests of several moments are on their way, also of more lengths
// than share a ctx.
func TestCloseCutsAllRequests(t *testing.T) {
	for _, lengths := range []int{1, 12} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(t, memlock.NewServer())
			s.remote = true
			c := open(t, &mute{spy: s, left: 1000}, nil)
			for i := range lengths {
				take(t, c, strconv.Itoa(i), &holdfast.AcquireOptions{TTL: time.Duration(1000+i) * time.Millisecond})
			}
			for i := range 5 {
				l := take(t, c, "late/"+strconv.Itoa(i), nil)
				go func() { _ = l.Release(t.Context()) }()
				time.Sleep(370 * time.Millisecond)
			}
			start := time.Now()
			want(t, c.Close(), holdfast.ErrUnavailable)
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("%d lengths: close took %v", lengths, took)
			}
		})
	}
}

// The release of the last hold that lingers has its time too, whenever that is.
func TestCloseWaitsForTheReleaseOfALingeringHold(t *testing.T) {
	for _, minHold := range []time.Duration{time.Second, 4990 * time.Millisecond, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSession(t, server, time.Minute)
			release := s.onRelease
			s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
				select {
				case <-time.After(time.Second):
					return release(ctx, req)
				case <-ctx.Done():
					return false, torn()
				}
			}
			c := open(t, s, nil)
			s.beats(0)
			take(t, c, "x", &holdfast.AcquireOptions{MinHold: minHold})
			if err := c.Close(); err != nil {
				t.Errorf("min hold %v: %v", minHold, err)
			}
			free(t, server)
		})
	}
}
