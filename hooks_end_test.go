package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestHookOfLossByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tale, c := told(t, memlock.NewServer())
		l := take(t, c, "x", &holdfast.AcquireOptions{TTL: 3 * time.Second, NoRenew: true})
		time.Sleep(10 * time.Second)
		want(t, l.Release(t.Context()), holdfast.ErrLost)
		e := tale.check(t, 0, "acquired lost")[1]
		want(t, e.Err, holdfast.ErrLost)
		if e.Left != 0 || e.Took < 2900*time.Millisecond || e.Took > 3*time.Second || e.Token != l.Token() {
			t.Errorf("%+v", e)
		}
	})
}

func TestHookOfBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		_, tale, c := told(t, server)
		l := take(t, c, "x", nil)
		b := holdfast.BreakOptions{Token: l.Token(), Reason: "stuck", By: "me"}
		if err := newSpy(t, server).client(t).Break(t.Context(), "x", b); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e := tale.check(t, 0, "acquired lost")[1]
		want(t, e.Err, holdfast.ErrBroken, holdfast.ErrLost)
		if e.Left < 20*time.Second {
			t.Errorf("%v left", e.Left)
		}
		want(t, l.Release(t.Context()), holdfast.ErrBroken)
		tale.check(t, 0, "acquired lost") // the release acknowledges, and tells nothing more
		free(t, server)

		l = take(t, c, "y", nil) // its holder never acknowledges
		b.Token = l.Token()
		if err := c.Break(t.Context(), "y", b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		free(t, server)
		tale.check(t, l.Token(), "acquired lost") // not again when it runs out
	})
}

func TestHookOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tale, c := told(t, memlock.NewServer())
		var leases []*holdfast.Lease
		for _, name := range []string{"x", "y"} {
			leases = append(leases, take(t, c, name, nil))
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			give(t, l)
			if e := tale.check(t, l.Token(), "acquired released")[1]; e.Err != nil || e.Name != l.Name() {
				t.Errorf("%+v", e)
			}
		}
		if n := len(tale.of(0)); n != 4 {
			t.Errorf("%d events", n)
		}
	})
}

func TestHookOfHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		_, tale, c := told(t, server)
		l := take(t, c, "x", nil)
		text, err := l.Handle()
		if err != nil {
			t.Fatal(err)
		}
		tale.check(t, 0, "acquired released")
		_, tale2, c2 := told(t, server)
		adopted, err := c2.Adopt(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		give(t, adopted)
		events := tale2.check(t, 0, "acquired released")
		if events[0].Token != l.Token() || events[0].Name != "x" || events[0].Mode != holdfast.Exclusive {
			t.Errorf("%+v", events[0])
		}
	})
}

// Every lease of a hold that is lost has its own end told, those released
// before excepted.
func TestHookOfTwoLeasesOfOneHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tale := newSpy(t, memlock.NewServer()), &story{}
		s.onRenew = func(context.Context, []driver.RenewRequest) error { return torn() }
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		o := &holdfast.AcquireOptions{Key: "k", TTL: 3 * time.Second}
		take(t, c, "x", o)
		take(t, c, "x", o)
		give(t, take(t, c, "x", o))
		tale.check(t, 0, "acquired acquired acquired released")
		time.Sleep(5 * time.Second)
		ends := 0
		for _, e := range tale.of(0)[4:] {
			if e.Kind == holdfast.EventLost {
				ends++
			} else if e.Kind != holdfast.EventRenewFailed {
				t.Errorf("%+v", e)
			}
		}
		if ends != 2 {
			t.Errorf("%d ends of 2 leases", ends)
		}
	})
}

// A hook that panics does so on the goroutine of the call that it is told of,
// and the client goes on.
func TestHookPanics(t *testing.T) {
	for _, kind := range []holdfast.EventKind{holdfast.EventAcquired, holdfast.EventReleased, holdfast.EventRefused} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			_, tale, c := told(t, server)
			tale.also = func(e holdfast.Event) {
				if e.Kind == kind && e.Name == "x" {
					panic("hook")
				}
			}
			if kind == holdfast.EventRefused {
				take(t, newSpy(t, server).client(t), "x", nil)
			}
			if got := recovered(func() {
				if l, err := c.TryAcquire(t.Context(), "x", nil); err == nil {
					_ = l.Release(t.Context())
				}
			}); got != "hook" {
				t.Errorf("%v: recovered %v", kind, got)
			}
			give(t, take(t, c, "y", nil))
			tale.also = nil
			if err := c.Close(); err != nil {
				t.Errorf("%v: %v", kind, err)
			}
			if kind != holdfast.EventRefused {
				free(t, server)
			}
		})
	}
}

// recovered gives what fn panics with, nil if it does not.
func recovered(fn func()) (what any) {
	defer func() { what = recover() }()
	fn()
	return nil
}

// A hook that takes its time over one loss delays no other, and no renewal.
func TestSlowHookDelaysNoOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tale, c := told(t, memlock.NewServer())
		gate := make(chan struct{})
		tale.also = func(e holdfast.Event) {
			if e.Kind == holdfast.EventLost {
				<-gate
			}
		}
		start := time.Now()
		ends := func(ttl time.Duration, name string) *holdfast.Lease {
			return take(t, c, name, &holdfast.AcquireOptions{TTL: ttl, NoRenew: true})
		}
		same, same2, next := ends(3*time.Second, "a"), ends(3*time.Second, "b"), ends(4*time.Second, "c")
		lives := take(t, c, "d", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		<-same.Context().Done()
		<-same2.Context().Done()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("told after %v", took)
		}
		<-next.Context().Done()
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("the next told after %v", took)
		}
		time.Sleep(time.Minute)
		if !lives.Valid() {
			t.Error("a lease was not renewed")
		}
		close(gate)
	})
}
