package holdfast

import (
	"context"
	"errors"
)

// Do acquires the name, runs fn, and releases it, also if fn panics. The ctx
// of fn is the lease's and ends with the caller's too: fn should stop when it
// ends. Do returns fn's error; if that is nil but the lease was no longer valid
// when fn returned, ErrLost (or ErrBroken): what fn did may have overlapped
// with another holder. Close in the middle of the work is ErrLost and ErrClosed.
// An error of the release is not returned (the store frees
// the name at the latest when the lease would have ended), but told to
// Options.Observe.
func (c *Client) Do(ctx context.Context, name string, o *AcquireOptions, fn func(ctx context.Context, l *Lease) error) error {
	lease, err := c.Acquire(ctx, name, o)
	if err != nil {
		return err
	}
	work := lease.newContext(lease.Context())
	defer work.cancel(nil)
	stop := context.AfterFunc(ctx, func() { work.cancel(context.Cause(ctx)) })
	defer stop()
	defer func() { _ = lease.Release(ctx) }()
	err = fn(work, lease)
	if err == nil && !lease.Valid() {
		return lease.whyInvalid("do")
	}
	return err
}

// whyInvalid is nil if the lease ended because its holder released it.
func (l *Lease) whyInvalid(op string) error {
	c := l.hold.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(l.cause, ErrClosed): // by somebody else, in the middle of the work
		return l.errorf(op, ErrLost, l.cause)
	case errors.Is(l.cause, ErrReleased):
		return nil
	}
	return l.ended(op)
}
