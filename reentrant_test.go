package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// heldBy counts the holds of a name in the store.
func heldBy(tb testing.TB, c *holdfast.Client, name string) int {
	tb.Helper()
	r, err := c.Inspect(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return len(r.Holders)
}

// With the context of a lease an acquire shares its hold, and the last release
// frees the name, in whatever order they come.
func TestReentrantByContext(t *testing.T) {
	for _, outerFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			c := s.client(t)
			outer := take(t, c, "x", nil)
			before := s.acquires.Load()
			inner, err := c.Acquire(outer.Context(), "x", &holdfast.AcquireOptions{Reentrant: true})
			if err != nil {
				t.Fatal(err)
			}
			if s.acquires.Load() != before || inner.Token() != outer.Token() || inner.Owner() != outer.Owner() {
				t.Errorf("%d store commands, tokens %d and %d", s.acquires.Load()-before, outer.Token(), inner.Token())
			}
			first, second := inner, outer
			if outerFirst {
				first, second = outer, inner
			}
			give(t, first)
			if first.Valid() || !second.Valid() || heldBy(t, c, "x") != 1 {
				t.Error("the first release ended the wrong lease")
			}
			give(t, first) // again: it does not count twice
			if !second.Valid() || heldBy(t, c, "x") != 1 {
				t.Error("a repeated release freed the name")
			}
			give(t, second)
			free(t, server)
		})
	}
}

// Without asking for it, or with the context of a lease that has ended, nothing
// is shared.
func TestReentrancyIsExplicit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		outer := take(t, c, "x", nil)
		_, err := c.Acquire(outer.Context(), "x", nil)
		want(t, err, holdfast.ErrConflict)
		_, err = c.TryAcquire(outer.Context(), "x", nil)
		want(t, err, holdfast.ErrConflict)
		other, err := c.Acquire(outer.Context(), "y", nil) // another name
		if err != nil {
			t.Fatal(err)
		}
		give(t, other)
		_, err = c.TryAcquire(t.Context(), "x", &holdfast.AcquireOptions{Reentrant: true}) // no proof
		want(t, err, holdfast.ErrHeld)
		give(t, outer)
		fresh, err := c.Acquire(context.WithoutCancel(outer.Context()), "x", &holdfast.AcquireOptions{Reentrant: true})
		if err != nil {
			t.Fatal(err)
		}
		if fresh.Token() <= outer.Token() || !fresh.Valid() {
			t.Error("the lease of a hold that had ended")
		}
		give(t, fresh)
	})
}

// A key does the same for goroutines that do not have the context, also for one
// that came while the name was waited for.
func TestReentrantByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		held := take(t, newSpy(t, server).client(t), "x", nil)
		o := &holdfast.AcquireOptions{Key: "job 7"}
		var outs []<-chan outcome
		for range 5 {
			outs = append(outs, later(t.Context(), c, "x", o))
			synctest.Wait() // in line before the next comes
		}
		stranger := later(t.Context(), c, "x", &holdfast.AcquireOptions{Key: "job 8"})
		time.Sleep(time.Second)
		give(t, held)
		var leases []*holdfast.Lease
		for _, out := range outs {
			leases = append(leases, (<-out).lease)
		}
		leases = append(leases, take(t, c, "x", o))
		for _, l := range leases {
			if l.Token() != leases[0].Token() || !l.Valid() {
				t.Errorf("token %d beside %d", l.Token(), leases[0].Token())
			}
			if len(stranger) != 0 {
				t.Error("another key came in")
			}
			give(t, l)
		}
		got := <-stranger
		if got.err != nil || got.lease.Token() <= leases[0].Token() {
			t.Fatalf("%+v", got)
		}
		give(t, got.lease)
		free(t, server)
	})
}

// A key outlives the lease that brought it, and ends with the hold.
func TestKeyStandsForTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		o := &holdfast.AcquireOptions{Key: "k"}
		a, b := take(t, c, "x", o), take(t, c, "x", o)
		give(t, a)
		third := take(t, c, "x", o)
		if third.Token() != b.Token() {
			t.Error("the key was lost with the first lease")
		}
		give(t, b)
		give(t, third)
		fresh := take(t, c, "x", o)
		if fresh.Token() == a.Token() {
			t.Error("the key outlived the hold")
		}
		give(t, fresh)
	})
}

// Who asks for a longer TTL gets it for the whole hold.
func TestReentrantStretches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		outer := take(t, c, "x", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		inner, err := c.Acquire(outer.Context(), "x", &holdfast.AcquireOptions{Reentrant: true, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if left := trusted(outer); left < 30*time.Second || left != trusted(inner) {
				t.Errorf("%v left, and %v", left, trusted(inner))
			}
			time.Sleep(5 * time.Minute)
		}
		give(t, inner)
		give(t, outer)
	})
}

func TestReentrantModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		exclusive, shared := &holdfast.AcquireOptions{Reentrant: true}, &holdfast.AcquireOptions{Reentrant: true, Mode: holdfast.Shared}
		try := func(ctx context.Context, o *holdfast.AcquireOptions) error {
			l, err := c.Acquire(ctx, "x", o)
			if err == nil {
				give(t, l)
			}
			return err
		}
		writer := take(t, c, "x", exclusive)
		want(t, try(writer.Context(), shared), nil) // exclusive covers shared
		want(t, try(writer.Context(), exclusive), nil)
		give(t, writer)
		reader := take(t, c, "x", shared)
		want(t, try(reader.Context(), shared), nil)
		want(t, try(reader.Context(), exclusive), holdfast.ErrConflict) // it would wait for itself
		give(t, reader)
		permits := take(t, c, "s", &holdfast.AcquireOptions{Permits: 1, Limit: 2})
		_, err := c.Acquire(permits.Context(), "s", &holdfast.AcquireOptions{Permits: 1, Limit: 2, Reentrant: true})
		want(t, err, holdfast.ErrInvalid)
		give(t, permits)
	})
}
