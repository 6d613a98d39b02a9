package holdfast

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// askNow is a renewal, or with ttl 0 a check, that a user asks for himself.
func (h *hold) askNow(ctx context.Context, l *Lease, op string, ttl time.Duration) error {
	c := h.c
	done, err := c.enter(op, h.line.name.Full)
	if err != nil {
		return err
	}
	defer done()
	req, bound, err := h.beginAsking(ctx, l, op, ttl)
	if err != nil {
		return err
	}
	rctx, cancel := c.bounded(ctx, bound)
	defer cancel()
	sent := driver.Now()
	res := c.store.Renew(rctx, []driver.RenewRequest{req})[0]

	c.mu.Lock()
	close(h.asking)
	h.asking = nil
	var bye *farewell
	if res.Err == nil {
		bye = c.renewed(h, driver.Now(), sent, res, ttl > 0)
		if ttl > 0 && res.Window == 0 && h.ask.noRenew && !h.ended {
			h.setDeadline(trustUntil(sent, ttl)) // by our own clock, as Client.trust does
		}
	}
	c.keeper.schedule(h)
	err = l.ended(op)
	c.mu.Unlock()
	bye.end()
	bye.tell()
	if err == nil && res.Err != nil {
		return c.failure(ctx, op, h.line.name.Full, res.Err)
	}
	return err
}

// beginAsking waits until no other renewal of the hold is on its way, and makes
// the request. bound is the TTL that bounds its time.
func (h *hold) beginAsking(ctx context.Context, l *Lease, op string, ttl time.Duration) (req driver.RenewRequest, bound time.Duration, err error) {
	c := h.c
	c.mu.Lock()
	for h.asking != nil && l.cause == nil {
		asking := h.asking
		c.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return req, 0, c.errorf(op, h.line.name.Full, ctx.Err(), nil)
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if err := l.ended(op); err != nil {
		return req, 0, err
	}
	if ttl > 0 && h.ask.maxHold > 0 {
		ttl = max(0, min(ttl, h.granted.Add(h.ask.maxHold).Until()))
	}
	h.asking = make(chan struct{})
	c.keeper.schedule(h)
	return driver.RenewRequest{Ref: h.ref(), TTL: ttl}, h.ask.ttl, nil
}

// failure makes the error of a request that got none of the answers it may get.
func (c *Client) failure(ctx context.Context, op, name string, err error) *Error {
	if ctx.Err() != nil {
		return c.errorf(op, name, ctx.Err(), err)
	}
	return c.errorf(op, name, kindError(c.store.Classify(err)), err)
}

// renewed notes the answer to a renewal; under mu.
func (c *Client) renewed(h *hold, now, sent driver.Instant, res driver.RenewResult, extends bool) *farewell {
	switch {
	case h.ended:
	case now >= driver.Instant(h.deadline.Load()):
		// Too late to count: whoever looked at the deadline meanwhile saw a lost
		// lease, and lost it stays.
		return c.expire(h)
	case res.Status == driver.Lost:
		return c.lose(h, "the store no longer has it", res.Reason)
	case res.Status == driver.Broken:
		return c.revoke(h, res.Reason)
	case extends:
		h.extend(now, cmp.Or(res.Sent, sent), res.Window)
		c.keeper.schedule(h)
	}
	return nil
}
