package holdfast

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// try makes one attempt for a waiter that stands in no line.
func (c *Client) try(w *waiter, name string) (*Lease, error) {
	done, err := c.enter("acquire", name)
	if err != nil {
		return nil, err
	}
	defer done()
	if refused := c.overtakes(w); refused != nil {
		return nil, refused
	}
	p := c.newPlace(w, nil)
	p.sent = w.start
	res, err := c.attempt(w.ctx, p, false)
	switch {
	case err != nil && w.ctx.Err() != nil:
		return nil, c.waitError(name, w.ctx.Err(), kindError(c.store.Classify(err)), err, nil)
	case err != nil:
		return nil, c.errorf("acquire", name, kindError(c.store.Classify(err)), err)
	case res.Status != driver.Granted:
		e := c.errorf("acquire", name, ErrHeld, nil)
		e.Holder = c.newHolder(res.Queue.Holder)
		return nil, e
	}
	return c.take(w, p, res.Grant)
}

// overtakes refuses an attempt that would pass those who wait in this process,
// on stores that keep no queue which would see to that.
func (c *Client) overtakes(w *waiter) error {
	if c.queuer != nil || w.ask.unfair {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ln := c.lines[lineKey{w.name.Key, false}]
	switch {
	case ln == nil || ln.first == nil:
		return nil
	case ln.down():
		return c.errorf("acquire", w.name.Full, ErrUnavailable, ln.cause)
	}
	return c.errorf("acquire", w.name.Full, ErrHeld, textError("others of this process wait for it"))
}

// take turns the grant of a single attempt into a lease.
func (c *Client) take(w *waiter, p *place, g driver.Grant) (*Lease, error) {
	now := driver.Now()
	deadline, err := c.trust(p, g, now)
	c.mu.Lock()
	delete(c.places, p.owner)
	switch {
	case c.closed:
		err = ErrClosed
	case w.ctx.Err() != nil:
		err = w.ctx.Err()
	case err == nil && p.lost:
		err = errLateGrant
	}
	if err != nil {
		c.mu.Unlock()
		c.giveBack(p, g)
		return nil, c.grantError(w.name.Full, err)
	}
	h := c.newHold(c.line(p.name, w.ask.unfair), p, g, now, deadline)
	h.serve(w, now)
	c.mu.Unlock()
	return w.lease, nil
}

// acquireTries makes at most o.Tries attempts.
func (c *Client) acquireTries(w *waiter, name string, o *AcquireOptions) (*Lease, error) {
	ctx := w.ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, time.Now().Add(w.start.Add(o.Wait).Until()))
		defer cancel()
	}
	pause := backoff{}
	var downSince driver.Instant
	for i := 1; ; i++ {
		lease, err := c.try(w, name)
		if err == nil || i == o.Tries || !retriable(err) {
			return lease, err
		}
		downSince = c.tellDown(w, name, err, downSince)
		c.sleep(ctx, pause.next())
		switch {
		case w.ctx.Err() != nil: // nothing more is tried (law W1)
			return nil, c.triesError(name, w.ctx.Err(), err)
		case ctx.Err() != nil: // Wait is over: a last attempt
			if lease, err = c.try(w, name); err == nil {
				return lease, nil
			}
			return nil, c.triesError(name, ErrTimeout, err)
		}
	}
}

// tellDown tells of a store that is down, as those who wait in a line are told,
// after an attempt that ended with err. It returns since when the store is down.
func (c *Client) tellDown(w *waiter, name string, err error, since driver.Instant) driver.Instant {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind == ErrHeld { //nolint:errorlint // a kind of ours
		return 0
	}
	now := driver.Now()
	since = cmp.Or(since, now)
	if w.toldDown == 0 || now >= max(w.toldDown, since).Add(longWait) {
		w.toldDown = now
		c.observe(w.ctx, c.storeDown(w, name, e.Err, now.Sub(since)))
	}
	return since
}

// triesError is the error of a wait that ended between two attempts, of which
// last was the latest refusal.
func (c *Client) triesError(name string, why, last error) error {
	if e, ok := errors.AsType[*Error](last); ok {
		return c.waitError(name, why, e.Kind, e.Err, e.Holder)
	}
	return c.waitError(name, why, last, nil, nil)
}
