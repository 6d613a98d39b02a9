package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// runOut looks at a lease until it may not be trusted any more: that is earlier
// than any goroutine that slept until then can know it. Hence real time: a
// bubble's stands still while somebody looks.
func runOut(l *holdfast.Lease) {
	for l.Valid() {
	}
}

var brief = holdfast.AcquireOptions{TTL: holdfast.MinTTL, NoRenew: true}

// A lease's context has ended when Valid says so, and with it what derives from
// it, whichever way it is asked (law L1).
func TestContextEndsWithTheTrust(t *testing.T) {
	for way, look := range map[string]func(context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Cause": func(ctx context.Context) bool { return context.Cause(ctx) != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a new one": func(ctx context.Context) bool {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return ctx.Err() != nil
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := open(t, memlock.New(), nil)
			l := take(t, c, "x", &brief)
			derived, cancel := context.WithCancel(l.Context())
			defer cancel()
			done := derived.Done()
			runOut(l)
			if !look(l.Context()) {
				t.Fatal("the context lives although the lease is not valid")
			}
			<-l.Context().Done() // would hang for ever
			<-done
			want(t, l.Context().Err(), context.Canceled)
			want(t, context.Cause(l.Context()), holdfast.ErrLost)
			want(t, derived.Err(), context.Canceled)
			want(t, context.Cause(derived), holdfast.ErrLost)
		})
	}
}

// So has the ctx of work under a lease.
func TestContextOfWorkEndsWithTheTrust(t *testing.T) {
	c := open(t, memlock.New(), nil)
	err := c.Do(t.Context(), "x", &brief, func(ctx context.Context, l *holdfast.Lease) error {
		runOut(l)
		want(t, ctx.Err(), context.Canceled)
		want(t, context.Cause(ctx), holdfast.ErrLost)
		return nil
	})
	want(t, err, holdfast.ErrLost)
}

// Who was told that a lease is lost hears nothing else afterwards, be the keeper as
// late as it may, and the loss is told once.
func TestLostWithoutTheKeeper(t *testing.T) {
	var told story
	c := open(t, memlock.New(), &holdfast.Options{Observe: told.observe})
	l := take(t, c, "x", &brief)
	runOut(l)
	want(t, l.Check(t.Context()), holdfast.ErrLost)
	want(t, l.Renew(t.Context(), holdfast.MinTTL), holdfast.ErrLost)
	want(t, l.Release(t.Context()), holdfast.ErrLost)
	want(t, l.Release(t.Context()), holdfast.ErrLost)
	want(t, context.Cause(l.Context()), holdfast.ErrLost)
	give(t, take(t, c, "x", nil))
	if err := c.Close(); err != nil { // all is told then
		t.Error(err)
	}
	told.check(t, l.Token(), "acquired lost")
}

// An acquire under a lease looks at the lease's context with the client's lock.
func TestContextEndsUnderTheLock(t *testing.T) {
	s := newSpy(t, memlock.NewServer())
	c := s.client(t)
	l := take(t, c, "x", &brief)
	s.onAcquire = func(_ context.Context, reqs []*driver.AcquireRequest) error {
		if reqs[0].Name.Full == "y" {
			runOut(l)
		}
		return nil
	}
	if inner, err := c.Acquire(l.Context(), "y", nil); err == nil {
		t.Error("acquired under a context that has ended")
		give(t, inner)
	}
}

func BenchmarkContextErr(b *testing.B) {
	c := open(b, memlock.New(), nil)
	l := take(b, c, "x", nil)
	ctx := l.Context()
	b.ReportAllocs()
	for b.Loop() {
		if ctx.Err() != nil {
			b.Fatal("ended")
		}
	}
	give(b, l)
}
