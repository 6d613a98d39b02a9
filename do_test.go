package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

var errWork = errors.New("the work failed")

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		for _, result := range []error{nil, errWork} {
			var lease *holdfast.Lease
			err := c.Do(t.Context(), "x", nil, func(ctx context.Context, l *holdfast.Lease) error {
				if lease = l; !l.Valid() || ctx.Err() != nil || heldBy(t, c, "x") != 1 {
					t.Error("not held")
				}
				return result
			})
			if err != result || lease.Valid() { //nolint:errorlint // exactly the function's own
				t.Errorf("%v, want %v", err, result)
			}
			free(t, server)
		}
		take(t, newSpy(t, server).client(t), "x", nil)
		err := c.Do(t.Context(), "x", &holdfast.AcquireOptions{Tries: 1}, func(context.Context, *holdfast.Lease) error {
			t.Error("worked without the lock")
			return nil
		})
		want(t, err, holdfast.ErrHeld)
	})
}

// The name is released when the work panics, and the panic goes on.
func TestDoPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		what := recovered(func() {
			_ = c.Do(t.Context(), "x", nil, func(context.Context, *holdfast.Lease) error { panic("work") })
		})
		if what != "work" {
			t.Errorf("recovered %v", what)
		}
		free(t, server)
	})
}

// The work's context ends with the caller's, with its cause; the lease does
// not, and is released all the same.
func TestDoWithContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		err := c.Do(ctx, "x", nil, func(ctx context.Context, l *holdfast.Lease) error {
			cancel(errWork)
			<-ctx.Done()
			if !l.Valid() || l.Context().Err() != nil {
				t.Error("the lease ended with the caller's context")
			}
			return context.Cause(ctx)
		})
		want(t, err, errWork)
		free(t, server)
	})
}

// The work learns that the lease is lost; Do tells it if the work does not.
func TestDoWithLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.onRenew = func(context.Context, []driver.RenewRequest) error { return down() }
		c := s.client(t)
		for _, result := range []error{nil, errWork} {
			err := c.Do(t.Context(), "x", nil, func(ctx context.Context, _ *holdfast.Lease) error {
				<-ctx.Done()
				want(t, context.Cause(ctx), holdfast.ErrLost)
				return result
			})
			if result == nil {
				result = holdfast.ErrLost
			}
			want(t, err, result)
		}
	})
}

// Neither does work that looks at no context pass as done under the lock.
func TestDoThatNoticesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		err := c.Do(t.Context(), "x", &holdfast.AcquireOptions{TTL: time.Second, NoRenew: true}, func(context.Context, *holdfast.Lease) error {
			time.Sleep(2 * time.Second)
			return nil
		})
		want(t, err, holdfast.ErrLost)
		err = c.Do(t.Context(), "x", nil, func(_ context.Context, l *holdfast.Lease) error {
			err := c.Break(t.Context(), "x", holdfast.BreakOptions{Token: l.Token(), Reason: "test", Force: true})
			synctest.Wait() // until the signal has come
			return err
		})
		want(t, err, holdfast.ErrLost)
	})
}

// Close in the middle of the work is a loss; a release by the work is none.
func TestDoWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		err := c.Do(t.Context(), "x", nil, func(_ context.Context, l *holdfast.Lease) error { return l.Release(t.Context()) })
		want(t, err, nil)
		err = c.Do(t.Context(), "x", nil, func(ctx context.Context, _ *holdfast.Lease) error {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return nil
		})
		want(t, err, holdfast.ErrLost, holdfast.ErrClosed)
	})
}
