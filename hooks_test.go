package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// told makes a client of a spy whose events are written down.
func told(tb testing.TB, server *memlock.Server) (*spy, *story, *holdfast.Client) {
	tb.Helper()
	s, tale := newSpy(tb, server), &story{}
	return s, tale, open(tb, s, &holdfast.Options{Observe: tale.observe})
}

func TestHookOfAcquireAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tale, c := told(t, memlock.NewServer())
		l := take(t, c, "x", nil)
		time.Sleep(3 * time.Second)
		give(t, l)
		give(t, l) // tells nothing more
		events := tale.check(t, 0, "acquired released")
		for _, e := range events {
			if e.Store != "memory" || e.Name != "x" || e.Mode != holdfast.Exclusive || e.Token != l.Token() || e.Err != nil {
				t.Errorf("%v: %+v", e.Kind, e)
			}
		}
		if events[0].Took != 0 || events[1].Took != 3*time.Second {
			t.Errorf("took %v and %v", events[0].Took, events[1].Took)
		}
	})
}

func TestHookOfRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		_, tale, c := told(t, server)
		take(t, newSpy(t, server).client(t), "x", nil)
		if _, err := c.TryAcquire(t.Context(), "x", nil); err == nil {
			t.Fatal("granted twice")
		}
		if _, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{Wait: 2 * time.Second, Mode: holdfast.Shared}); err == nil {
			t.Fatal("granted twice")
		}
		if _, err := c.Acquire(t.Context(), "", nil); err == nil {
			t.Fatal("granted without a name")
		}
		events := tale.check(t, 0, "refused refused refused")
		want(t, events[0].Err, holdfast.ErrHeld)
		want(t, events[1].Err, holdfast.ErrTimeout, holdfast.ErrHeld)
		want(t, events[2].Err, holdfast.ErrInvalid)
		if events[0].Took != 0 || events[1].Took < 2*time.Second || events[1].Mode != holdfast.Shared || events[0].Name != "x" {
			t.Errorf("%+v", events)
		}
	})
}

// After 10 s, once, a waiter is told who holds the name and how many are
// before it, in the store and here.
func TestHookOfLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		_, tale, c := told(t, server)
		other := open(t, newSpy(t, server), &holdfast.Options{Label: "holder"})
		held := take(t, other, "x", nil)
		before := later(t.Context(), newSpy(t, server).client(t), "x", nil)
		synctest.Wait()
		first := later(t.Context(), c, "x", nil)
		time.Sleep(time.Second)
		second := later(t.Context(), c, "x", nil)
		time.Sleep(8999 * time.Millisecond)
		tale.check(t, 0, "")
		time.Sleep(time.Minute)
		for i, e := range tale.check(t, 0, "long_wait long_wait") {
			if e.Holder == nil || e.Holder.Label != "holder" || e.Ahead != 1+i || e.Took != 10*time.Second || e.Err != nil || e.Name != "x" {
				t.Errorf("%+v", e)
			}
		}
		give(t, held)
		for _, out := range []<-chan outcome{before, first, second} {
			give(t, (<-out).lease)
		}
	})
}

// A wait that ended during its own first attempt is not told as a long one later.
func TestHookOfLongWaitAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tale, c := told(t, memlock.NewServer())
		s.onAcquire = func(ctx context.Context, _ []*driver.AcquireRequest) error {
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Acquire(ctx, "x", nil)
		want(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		tale.check(t, 0, "refused")
	})
}

// A wait for a store that is down is told at once, and again when it has become
// long; then it names no holder.
func TestHookOfLongWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tale, c := told(t, memlock.NewServer())
		s.onAcquire = func(context.Context, []*driver.AcquireRequest) error { return down() }
		ctx, cancel := context.WithCancel(t.Context())
		out := later(ctx, c, "x", nil)
		synctest.Wait()
		tale.check(t, 0, "store_down")
		time.Sleep(11 * time.Second)
		cancel()
		want(t, (<-out).err, context.Canceled)
		events := tale.check(t, 0, "store_down long_wait store_down refused")
		want(t, events[0].Err, holdfast.ErrUnavailable)
		want(t, events[1].Err, holdfast.ErrUnavailable)
		want(t, events[3].Err, context.Canceled)
		if events[0].Took != 0 || events[0].Name != "x" || events[0].Mode != holdfast.Exclusive || events[1].Took != 10*time.Second {
			t.Errorf("%+v", events)
		}
		if events[1].Holder != nil {
			t.Errorf("holder %v of a store that was never asked", events[1].Holder)
		}
	})
}

// Whoever waits while the store goes down, or comes while it is, is told once;
// whoever comes later, and meets only another holder, is not.
func TestHookOfStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s, tale := newPlain(t, server), &story{}
		var isDown atomic.Bool
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			if isDown.Load() {
				return driver.AcquireResult{}, down()
			}
			return s.inner.Acquire(ctx, req)
		}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		held := take(t, newSpy(t, server).client(t), "x", nil)
		var outs []<-chan outcome
		for range 2 {
			outs = append(outs, later(t.Context(), c, "x", nil))
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		tale.check(t, 0, "")
		isDown.Store(true)
		time.Sleep(2 * time.Second) // the next attempt is due within a second
		for _, e := range tale.check(t, 0, "store_down store_down") {
			if e.Took != 0 {
				t.Errorf("told after %v", e.Took)
			}
		}
		outs = append(outs, later(t.Context(), c, "x", nil))
		synctest.Wait()
		if e := tale.check(t, 0, "store_down store_down store_down")[2]; e.Took < time.Second || e.Took > 2*time.Second {
			t.Errorf("down for %v", e.Took)
		}
		isDown.Store(false)
		time.Sleep(2 * time.Second)
		give(t, held)
		for _, out := range outs {
			give(t, (<-out).lease)
		}
		held = take(t, newSpy(t, server).client(t), "x", nil)
		out := later(t.Context(), c, "x", nil)
		time.Sleep(5 * time.Second)
		give(t, held)
		give(t, (<-out).lease)
		tale.checkOnly(t, holdfast.EventStoreDown, "store_down store_down store_down")
	})
}

// For as long as the store stays away that is told again, also of a wait that has
// long been long; an answer in between begins a new outage.
func TestHookOfLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s, tale := newParking(t, server), &story{}
		var isDown atomic.Bool
		ask := s.onAcquire
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			if isDown.Load() {
				return driver.AcquireResult{}, down()
			}
			return ask(ctx, req)
		}
		s.onBlock = func() error {
			if isDown.Load() {
				return down()
			}
			return nil
		}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		held := take(t, newSpy(t, server).client(t), "x", nil)
		out := later(t.Context(), c, "x", nil)
		time.Sleep(time.Minute)
		tale.checkOnly(t, holdfast.EventStoreDown, "")
		isDown.Store(true)
		time.Sleep(25 * time.Second)
		for i, e := range tale.checkOnly(t, holdfast.EventStoreDown, "store_down store_down store_down") {
			if since := time.Duration(i) * 10 * time.Second; e.Took != since {
				t.Errorf("told of an outage of %v as %v", since, e.Took)
			}
		}
		isDown.Store(false)
		time.Sleep(2 * time.Second)
		isDown.Store(true)
		time.Sleep(9 * time.Second)
		isDown.Store(false)
		tale.checkOnly(t, holdfast.EventStoreDown, "store_down store_down store_down")
		give(t, held)
		give(t, (<-out).lease)
	})
}

// So does one who makes a few attempts.
func TestHookOfStoreDownBetweenTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tale, c := told(t, memlock.NewServer())
		s.onAcquire = func(context.Context, []*driver.AcquireRequest) error { return down() }
		_, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{Tries: 4})
		want(t, err, holdfast.ErrUnavailable)
		want(t, tale.check(t, 0, "store_down refused")[0].Err, holdfast.ErrUnavailable)
	})
}

// A bounded wait that finds the store mended does not tell of an outage before it.
func TestOutageBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s, tale, c := told(t, server)
		s.onAcquire = func(context.Context, []*driver.AcquireRequest) error { return down() }
		o := &holdfast.AcquireOptions{Wait: time.Second}
		_, err := c.Acquire(t.Context(), "x", o)
		want(t, err, holdfast.ErrTimeout, holdfast.ErrUnavailable)
		time.Sleep(time.Hour)
		s.onAcquire = nil
		take(t, newSpy(t, server).client(t), "x", nil)
		_, err = c.Acquire(t.Context(), "x", o)
		want(t, err, holdfast.ErrTimeout, holdfast.ErrHeld)
		if errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		tale.check(t, 0, "store_down refused refused")
	})
}

func TestHookOfHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		_, tale, c := told(t, server)
		held := take(t, newSpy(t, server).client(t), "x", nil)
		first := later(t.Context(), c, "x", nil)
		synctest.Wait()
		second := later(t.Context(), c, "x", nil)
		time.Sleep(time.Second)
		give(t, held)
		a := (<-first).lease
		time.Sleep(time.Millisecond)
		give(t, a)
		b := (<-second).lease
		give(t, b)
		synctest.Wait()
		tale.check(t, a.Token(), "acquired released")
		events := tale.check(t, b.Token(), "handed_over released")
		if len(tale.of(0)) != 4 || events[0].Took != time.Second+time.Millisecond {
			t.Errorf("%+v", tale.of(0))
		}
	})
}

// Left is what was left of the deadline before the answer.
func TestHookOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tale := newSpy(t, memlock.NewServer()), &story{}
		s.onRenew = func(context.Context, []driver.RenewRequest) error {
			if s.renews.Load() == 2 {
				return down()
			}
			return nil
		}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		l := take(t, c, "x", &holdfast.AcquireOptions{TTL: 9 * time.Second})
		deadline, _ := l.Deadline()
		time.Sleep(3500 * time.Millisecond) // past the first renewal
		events := tale.check(t, 0, "acquired renewed")
		if e := events[1]; e.Left < time.Until(deadline) || e.Left > time.Until(deadline)+time.Second || e.Token != l.Token() || e.Err != nil {
			t.Errorf("%+v with %v to the old deadline", e, time.Until(deadline))
		}
		time.Sleep(3 * time.Second)
		events = tale.check(t, 0, "acquired renewed renew_failed renewed")
		if kind := driver.KindOf(events[2].Err); kind != driver.Unavailable || events[2].Left <= 0 || events[3].Left >= events[2].Left {
			t.Errorf("%v %+v", kind, events[2:])
		}
		give(t, l)
		tale.check(t, 0, "acquired renewed renew_failed renewed released")
	})
}

// An attempt of unknown outcome is told when it was undone, and once more before
// if the store did not answer that at first. It is undone in the background, at
// once, so the refusal may be told before, between or after.
func TestHookOfAbandonedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		tale, tale2 := &story{}, &story{}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		c2 := open(t, &deaf{spy: s}, &holdfast.Options{Observe: tale2.observe})
		s.onAcquire = func(context.Context, []*driver.AcquireRequest) error { return torn() }
		_, err := c2.TryAcquire(t.Context(), "x", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		want(t, err, holdfast.ErrIndeterminate)
		tale2.checkOnly(t, holdfast.EventRefused, "refused")
		time.Sleep(10 * time.Second)
		tale2.checkOnly(t, holdfast.EventRefused, "refused")
		events := tale2.checkOnly(t, holdfast.EventAbandoned, "abandoned abandoned")
		if events[0].Err == nil || events[1].Err != nil || events[1].Name != "x" || len(tale2.of(0)) != 3 {
			t.Errorf("%+v", tale2.of(0))
		}
		_, err = c.TryAcquire(t.Context(), "y", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		want(t, err, holdfast.ErrIndeterminate)
		time.Sleep(10 * time.Second)
		tale.checkOnly(t, holdfast.EventRefused, "refused")
		tale.checkOnly(t, holdfast.EventAbandoned, "abandoned")
		if len(tale.of(0)) != 2 {
			t.Errorf("%+v", tale.of(0))
		}
	})
}

// deaf does not answer the first release.
type deaf struct {
	*spy
	heard bool
}

func (d *deaf) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	if !d.heard {
		d.heard = true
		return []driver.ReleaseAnswer{{Err: torn()}}
	}
	return d.spy.ReleaseMany(ctx, reqs)
}
