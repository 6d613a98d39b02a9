package holdfast

import (
	"context"
	"time"
)

// leaseContext is the context of a lease, or of work under it. Whoever asks it
// after the lease's deadline ends it, so that it never lags behind Lease.Valid:
// the keeper's goroutine, which ends it for those who sleep on Done, may be late on
// a machine that is busy or was suspended. It is ended before it tells so: Err is
// set if and only if Done is closed, for what derives from it too.
type leaseContext struct {
	context.Context

	lease  *Lease
	cancel context.CancelCauseFunc
}

// newContext makes a context that ends with the lease; parent is the lease's
// own context, or what that is made of.
func (l *Lease) newContext(parent context.Context) *leaseContext {
	lc := &leaseContext{lease: l}
	lc.Context, lc.cancel = context.WithCancelCause(parent)
	return lc
}

func (lc *leaseContext) Err() error {
	if err := lc.Context.Err(); err != nil {
		return err
	}
	lc.lease.look()
	return lc.Context.Err()
}

func (lc *leaseContext) Done() <-chan struct{} {
	if lc.Context.Err() == nil {
		lc.lease.look()
	}
	return lc.Context.Done()
}

// errLapsed is why a lease has ended that the keeper has not ended yet.
var errLapsed = textError("its deadline has passed")

// look ends the lease's context if the lease has ended, or its deadline has passed.
// It may be called with client.mu and must not take it: an acquire under the lease
// looks at its ctx with the lock.
func (l *Lease) look() {
	lc := l.context.Load()
	lapsed := !l.over.Load() && l.hold.lapsed()
	switch {
	case lc == nil:
	case l.over.Load(): // again: a hold that was given back looks lapsed
		lc.cancel(l.cause)
	case lapsed:
		lc.cancel(l.errorf("hold", ErrLost, errLapsed))
	}
}

// heldKey finds the lease of a name in its context. It is asked for by pointer,
// which costs no allocation.
type heldKey struct {
	c   *Client
	key string
}

// leaseValues is the parent of a lease's context: the values of the acquire's
// ctx and the lease itself, but neither cancellation nor deadline. (It saves what
// context.WithoutCancel and WithValue would cost; package context asks a parent
// for its own cancellation only if that has a Done.)
type leaseValues struct {
	parent context.Context
	lease  *Lease
}

func (leaseValues) Deadline() (time.Time, bool) { return time.Time{}, false }
func (leaseValues) Done() <-chan struct{}       { return nil }
func (leaseValues) Err() error                  { return nil }

func (v leaseValues) Value(key any) any {
	if held, ok := key.(*heldKey); ok && held.c == v.lease.hold.c && held.key == v.lease.hold.line.name.Key {
		return v.lease
	}
	return v.parent.Value(key)
}
