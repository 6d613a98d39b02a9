package holdfast

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire waits until it holds the name, and returns the lease. It fails when
// ctx ends, when AcquireOptions.Wait or Tries run out, and at once on what no
// wait can mend: ErrInvalid, ErrUnsupported, ErrDenied, ErrConflict, ErrClosed.
// While the store is unavailable it goes on trying.
//
// If ctx's deadline or Wait ended the wait the error is ErrTimeout, and also
// matches what it waited for last: ErrHeld or ErrUnavailable. If ctx was
// cancelled it is context.Canceled. When it returns an error, nothing of the
// attempt can still win the lock for long: what may be on its way is undone in
// the background. ctx does not bound the hold.
func (c *Client) Acquire(ctx context.Context, name string, o *AcquireOptions) (*Lease, error) {
	w, o, err := c.prepare(ctx, name, o)
	lease := w.lease
	switch {
	case err != nil || lease != nil:
		// refused, or reentrant
	case o.Tries > 0:
		lease, err = c.acquireTries(w, name, o)
	default:
		lease, err = c.wait(w, name, o.Wait)
	}
	c.tellOutcome(w, name, lease, err)
	w.recycle()
	return lease, err
}

// wait stands in line for the name.
func (c *Client) wait(w *waiter, name string, bound time.Duration) (*Lease, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, c.errorf("acquire", name, ErrClosed, nil)
	}
	ln := c.line(w.name, w.ask.unfair)
	ln.push(w)
	if ln.turn != nil && w.start == 0 {
		w.start = driver.Now()
	}
	inline, open := bound == 0 || c.props.Local, ln.turnOpen(w.start)
	switch {
	case !ln.serving && open:
		ln.armTurn()
		c.mu.Unlock()
	case !ln.serving && inline:
		ln.serving = true
		p := c.newPlace(w, ln)
		p.sent, p.seen = w.start, w.num // the start is early enough for law G4
		c.work.Add(1)
		c.mu.Unlock()
		ln.askInline(w, p)
		c.work.Done()
	default:
		ln.stir()
		c.mu.Unlock()
	}
	return ln.await(w, bound)
}

// TryAcquire makes exactly one attempt and does not wait for a holder. If
// somebody else holds the name, or waits for it, the error is ErrHeld. Wait
// and Tries of the options do not count. The other errors are those of
// [Client.Acquire]; a store that does not answer is ErrUnavailable or
// ErrIndeterminate.
func (c *Client) TryAcquire(ctx context.Context, name string, o *AcquireOptions) (*Lease, error) {
	w, _, err := c.prepare(ctx, name, o)
	lease := w.lease
	if err == nil && lease == nil {
		lease, err = c.try(w, name)
	}
	c.tellOutcome(w, name, lease, err)
	return lease, err
}

func (c *Client) tellOutcome(w *waiter, name string, lease *Lease, err error) {
	switch {
	case c.opts.Observe == nil:
	case err != nil:
		c.observe(w.ctx, Event{Kind: EventRefused, Name: name, Mode: w.ask.mode, Took: driver.Now().Sub(w.start), Err: err})
	default:
		told := false
		defer func() {
			if !told { // the hook panicked: whoever recovers from that has no lease to release
				_ = lease.Release(w.ctx)
			}
		}()
		c.tellAcquired(w, lease)
		told = true
	}
}

// prepare checks the input and makes the waiter. A reentrant acquire that
// shares a hold has its lease already.
func (c *Client) prepare(ctx context.Context, name string, o *AcquireOptions) (*waiter, *AcquireOptions, error) {
	if o == nil {
		o = &noOptions
	}
	w := newWaiter(ctx)
	if c.props.Bound == driver.ByLease || o.Wait > 0 || c.opts.Observe != nil {
		w.start = driver.Now() // else only a wait needs it
	}
	if err := o.validate(name); err != nil {
		return w, o, c.errorf("acquire", name, ErrInvalid, err)
	}
	w.name, w.label = c.storeName(name), cmp.Or(o.Label, c.label)
	w.ask = ask{
		mode: cmp.Or(o.Mode, Exclusive), n: o.Permits, limit: o.Limit,
		ttl: max(cmp.Or(o.TTL, c.opts.TTL), c.props.MinTTL), minHold: o.MinHold, maxHold: o.MaxHold, noRenew: o.NoRenew, unfair: o.Unfair,
		elects: o.elects,
	}
	if o.Permits > 0 {
		w.ask.mode = Permits
	}
	w.ask.window = c.window(w.ask)
	if err := c.able(name, w.ask); err != nil {
		return w, o, err
	}
	if ctx.Err() != nil {
		return w, o, c.waitError(name, ctx.Err(), nil, nil, nil)
	}
	lease, err := c.reenter(w, name, o)
	w.lease = lease
	return w, o, err
}

var noOptions AcquireOptions

// able refuses what the store cannot do, before it is asked.
func (c *Client) able(name string, a ask) error {
	switch {
	case a.mode == Shared && !c.props.Shared:
		return c.errorf("acquire", name, ErrUnsupported, textError("shared locks"))
	case a.mode == Permits && !c.props.Permits:
		return c.errorf("acquire", name, ErrUnsupported, textError("semaphores"))
	case c.tooLong(a.ttl) || c.tooLong(a.window):
		return c.errorf("acquire", name, ErrInvalid, textError("ttl or min hold: this store takes at most "+c.props.MaxTTL.String()))
	}
	return nil
}

func (c *Client) tooLong(ttl time.Duration) bool { return c.props.MaxTTL > 0 && ttl > c.props.MaxTTL }

// window is how long the store is asked to keep a grant. With MinHold a crash
// must keep it so long too, where that is possible.
func (c *Client) window(a ask) time.Duration {
	window := a.ttl
	if c.props.Bound == driver.ByLease {
		window = max(window, a.minHold)
	}
	if a.maxHold > 0 {
		window = min(window, a.maxHold)
	}
	return max(window, c.props.MinTTL)
}

// askInline makes the line's first attempt on the caller's goroutine: an
// acquire that meets nobody costs one request and no other goroutine.
func (ln *line) askInline(w *waiter, first *place) {
	c := ln.c
	res, err := c.attempt(w.ctx, first, c.queuer != nil && !w.ask.unfair)
	parked := ln.settle(w.ctx, first, res, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	w.own = !parked && w.lease != nil && w.lease.hold.owner == first.owner
	if !parked {
		ln.serving = false
	}
	if w.ctx.Err() != nil {
		ln.remove(w) // he is leaving: nothing more is tried for him (law W1)
	}
	if !parked {
		ln.stir()
	}
}
