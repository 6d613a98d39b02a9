package holdfast

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// debt is a release that the store still has to answer: of a lease when the
// store was away, or of an attempt that was given up. Debts are paid in the
// background (laws G6 and W2).
type debt struct {
	req   driver.ReleaseRequest
	alarm alarm
	tries int
	// An attempt whose reply was lost may reach the store even after its
	// release. It is released again and again until repeat has passed since the
	// first answer.
	repeat   time.Duration
	answered driver.Instant
	// until is when an unpaid debt is dropped, as the lease has ended anyway;
	// zero: never.
	until driver.Instant
}

// abandon undoes an attempt. unknown tells that its request may still be on
// its way.
func (c *Client) abandon(p *place, unknown bool) {
	d := &debt{req: driver.ReleaseRequest{Ref: p.ref(), Abandon: true}}
	if unknown && !c.props.Local {
		d.repeat = cmp.Or(c.props.Settle, p.ask.window)
	}
	c.mu.Lock()
	delete(c.places, p.owner)
	c.owe(d)
	c.mu.Unlock()
}

// giveBack releases a grant that came too late, or for nobody.
func (c *Client) giveBack(p *place, g driver.Grant) {
	c.mu.Lock()
	c.oweGrant(p, g)
	c.mu.Unlock()
}

// oweGrant is giveBack under mu.
func (c *Client) oweGrant(p *place, g driver.Grant) {
	ref := p.ref()
	ref.Token = g.Token
	c.owe(&debt{req: driver.ReleaseRequest{Ref: ref}})
}

// owe enters a debt, to be paid at once; under mu.
func (c *Client) owe(d *debt) {
	c.debts[d] = struct{}{}
	d.alarm.debt, d.alarm.at = d, driver.Now()
	c.keeper.set(&d.alarm)
}

// pay sends a debt once, and plans what is left of it.
func (c *Client) pay(d *debt) {
	_, err := c.sendRelease(c.always, &d.req)
	c.mu.Lock()
	now := driver.Now()
	d.tries++
	tries, done := d.tries, false
	switch {
	case err == nil && d.answered == 0:
		d.answered = now
		done = d.repeat == 0
	case err == nil:
		done = now >= d.answered.Add(d.repeat)
	case !transient(c.store.Classify(err)):
		done = true
	}
	if done || d.until != 0 && now >= d.until || c.stopped {
		delete(c.debts, d)
	} else {
		d.alarm.at = now.Add(d.pause())
		c.keeper.set(&d.alarm)
	}
	c.paid()
	c.mu.Unlock()
	if d.req.Abandon && d.repeat > 0 && (done || err != nil && tries == 1) {
		c.observe(c.life, Event{Kind: EventAbandoned, Name: d.req.Name.Full, Mode: d.req.Mode, Err: err})
	}
}

// mostUnanswered is how many attempts of unknown outcome a client has open before
// it stops adding to them.
const mostUnanswered = 32

// overloaded tells whether the store has left too much unanswered already.
func (c *Client) overloaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for d := range c.debts {
		if d.req.Abandon && d.answered == 0 && d.tries > 0 {
			n++
		}
	}
	return n >= mostUnanswered
}

// againMax is how long an attempt that arrives after its abandon may hold the
// name, however long its TTL, on a store that cannot refuse it.
const againMax = 5 * time.Second

func (d *debt) pause() time.Duration {
	if d.answered != 0 {
		return min(max(d.repeat/8, minMargin), againMax)
	}
	return min(pollMin<<min(d.tries, 7), 2*pollMax)
}

func (c *Client) sendRelease(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	ctx, cancel := c.within(ctx, c.releaseTimeout())
	defer cancel()
	if c.committer == nil {
		return c.store.Release(ctx, req)
	}
	return c.committer.release(ctx, req)
}
