package holdfast

import (
	"context"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Lease is a held lock. It renews itself until it is released, lost, or as the
// options say. Its methods may be called from many goroutines. A Lease that is
// dropped without Release stays held until the client is closed.
type Lease struct {
	hold   *hold
	token  uint64
	key    reentrancyKey
	renews bool          // whether this lease wants the hold renewed
	ttl    time.Duration // asked for
	values leaseValues
	since  driver.Instant
	told   bool // as acquired, to the hook; under client.mu

	// context is made when somebody asks for it: many leases are released
	// before that.
	context atomic.Pointer[leaseContext]

	over  atomic.Bool // set once cause is
	cause error       // why the lease ended; written once, under client.mu, read without it when over
	gone  error       // what its release found: the store no longer had it; under client.mu

	// The first Release. Not a sync.Once: those who wait for it would stop the
	// time of a testing/synctest bubble.
	// All under client.mu.
	releasing, released bool
	result              error
	waiting             chan struct{} // made by a second Release during the first
}

// Name is what is locked.
func (l *Lease) Name() string { return l.hold.line.name.Full }

// Mode is how the name is held.
func (l *Lease) Mode() Mode { return l.hold.ask.mode }

// Token is the fencing token of the grant: it only grows for a name, is
// positive and below 2^63. 0 means that the store cannot give one. Reentrant
// leases of one hold have one token.
func (l *Lease) Token() uint64 { return l.token }

// Owner identifies the hold in the store: 32 hexadecimal digits. Goroutines of
// one process that hand the name on among themselves share an owner.
func (l *Lease) Owner() string { return hex.EncodeToString(l.hold.owner[:]) }

// Valid tells whether the lease may still be trusted. It reads the clock and
// nothing else: call it right before a side effect. It is false from the
// deadline on, even if the process was stopped or the machine suspended. What was
// false once stays so.
func (l *Lease) Valid() bool { return !l.over.Load() && !l.hold.lapsed() }

// Context carries the values of the acquire's ctx, but not its cancellation.
// It ends with the lease; context.Cause then matches ErrLost, ErrBroken or
// ErrReleased. Its Err and Done look at the deadline themselves, as Valid does: who
// asks either after it finds the context, and those derived from it, ended. An
// acquire of the same name made with it is reentrant if it asks for that, and
// refused with ErrConflict if not.
func (l *Lease) Context() context.Context {
	if lc := l.context.Load(); lc != nil {
		return lc
	}
	c := l.hold.c
	c.mu.Lock()
	defer c.mu.Unlock()
	lc := l.context.Load()
	if lc == nil {
		lc = l.newContext(&l.values)
		if l.cause != nil {
			lc.cancel(l.cause) // nobody has it yet, so this runs no code of others
		}
		l.context.Store(lc)
	}
	return lc
}

// Deadline is until when the lease may be trusted unless it is renewed. It is
// false where the hold has no end of its own, as on the file store. After the
// end it is a time in the past.
func (l *Lease) Deadline() (time.Time, bool) {
	deadline := l.hold.until()
	if l.over.Load() {
		deadline = 0
	}
	if deadline == never {
		return time.Time{}, false
	}
	return time.Now().Add(deadline.Until()), true
}

// Check asks the store whether the lease is still held, in one request. nil
// means that it was when the store answered. It extends nothing. The errors
// are those of [Lease.Renew].
func (l *Lease) Check(ctx context.Context) error { return l.hold.askNow(ctx, l, "check", 0) }

// Renew extends the lease to at least ttl from now, in one request; it never
// adds up, shortens, or revives a lease that was lost. ttl must be from 200 ms
// to 24 h, and is cut to what MaxHold leaves. Errors: ErrInvalid; ErrLost,
// ErrBroken or ErrReleased if the lease has ended; ErrUnavailable or
// ErrIndeterminate if the store did not answer, when the lease lives on until
// its deadline. When ctx ends half-way the lease may have been extended.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	if err := validTTL("ttl", ttl); err != nil {
		return l.errorf("renew", ErrInvalid, err)
	}
	if l.hold.c.tooLong(ttl) {
		return l.errorf("renew", ErrInvalid, textError("ttl: this store takes at most "+l.hold.c.props.MaxTTL.String()))
	}
	return l.hold.askNow(ctx, l, "renew", ttl)
}

// Release gives the lease back. It does so even if ctx has ended, and takes at
// most 5 s. If the store does not answer, it returns ErrUnavailable or
// ErrIndeterminate and goes on trying in the background until the lease would
// have ended anyway. On a lease that was lost it changes nothing and returns
// ErrLost (or ErrBroken). A repeated Release returns what the first one did.
func (l *Lease) Release(ctx context.Context) error {
	c := l.hold.c
	c.mu.Lock()
	if l.releasing {
		return l.awaitRelease() // it unlocks
	}
	l.releasing = true
	c.mu.Unlock()
	told, err := l.hold.release(ctx, l)
	c.mu.Lock()
	l.released, l.result = true, err
	if l.waiting != nil {
		close(l.waiting)
	}
	c.mu.Unlock()
	if told {
		c.tellEnd(l, ErrReleased, 0, err)
	}
	return err
}

// awaitRelease answers a repeated Release; it is called with client.mu and
// returns without.
func (l *Lease) awaitRelease() error {
	c := l.hold.c
	if !l.released && l.waiting == nil {
		l.waiting = make(chan struct{})
	}
	waiting := l.waiting
	c.mu.Unlock()
	if waiting != nil {
		<-waiting
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.result
}

func (l *Lease) errorf(op string, kind, cause error) *Error {
	return l.hold.c.errorf(op, l.Name(), kind, cause)
}

// finish ends the lease; under client.mu. Its context must then be ended with
// endContext, without the lock, since that runs code of others.
func (l *Lease) finish(cause error) {
	if l.cause == nil {
		l.cause = cause
		l.over.Store(true)
		l.hold.c.leaveKey(l)
	}
}

// endContext tells the end of a finished lease. A repeated call does nothing.
func (l *Lease) endContext() {
	if lc := l.context.Load(); lc != nil {
		lc.cancel(l.cause)
	}
}

// ended says why the lease ended, nil if it has not; under client.mu. The keeper
// may not have come round to one whose deadline has passed.
func (l *Lease) ended(op string) error {
	cause := l.cause
	switch {
	case l.gone != nil:
		cause = l.gone
	case cause == nil && l.hold.lapsed():
		return l.errorf(op, ErrLost, errLapsed)
	case cause == nil:
		return nil
	}
	var why error
	if e, ok := errors.AsType[*Error](cause); ok {
		why = e.Err // the reason without its frame
	}
	return l.errorf(op, endKind(cause), why)
}

func endKind(cause error) error {
	for _, kind := range []error{ErrBroken, ErrLost, ErrReleased} {
		if errors.Is(cause, kind) {
			return kind
		}
	}
	return ErrLost
}

// fullToken is the fencing token of a grant, or of one that was handed over
// inside this process: the store's token, then the local sequence.
func (c *Client) fullToken(token uint64, seq uint8) uint64 {
	if c.props.FinalTokens || token == 0 {
		return token
	}
	return token<<8 | uint64(seq)
}

// storeToken is the store's part of a fencing token.
func (c *Client) storeToken(full uint64) uint64 {
	if c.props.FinalTokens {
		return full
	}
	return full >> 8
}

// newLease makes the lease of a hold for the waiter w; under client.mu.
func newLease(h *hold, w *waiter, token uint64, now driver.Instant) *Lease {
	l := &h.firstLease
	if l.hold != nil { // in use
		l = new(Lease)
	}
	l.hold, l.token, l.key, l.renews, l.ttl, l.since = h, token, w.key, !w.ask.noRenew, w.ask.ttl, now
	l.values = leaseValues{w.ctx, l}
	return l
}
