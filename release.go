package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// release ends one lease of the hold. The last one passes the hold on to a
// waiter of this process, or gives it back to the store. told is whether its
// end is to be told as a release.
func (h *hold) release(ctx context.Context, l *Lease) (told bool, err error) {
	c := h.c
	c.mu.Lock()
	cause := l.ended("release")
	if l.cause == nil && cause != nil {
		return false, l.endLate() // it unlocks
	}
	told = l.told && cause == nil
	l.finish(ErrReleased)
	if h.ended || errors.Is(cause, ErrReleased) {
		c.mu.Unlock()
		if errors.Is(cause, ErrReleased) {
			return false, nil // by Close, which released it
		}
		return false, cause
	}
	if !h.drop(l) || h.passOn() {
		c.mu.Unlock()
		l.endContext()
		return told, cause
	}
	if err := c.giveUp(ctx, h, l); err != nil {
		if cause == nil && errors.Is(err, ErrLost) { // every later call says so too
			c.mu.Lock()
			l.gone = err
			c.mu.Unlock()
		}
		return told, err
	}
	return told, cause
}

// endLate does what the keeper has not come round to: the deadline has passed. It
// is called with client.mu and returns without.
func (l *Lease) endLate() error {
	c := l.hold.c
	bye := c.expire(l.hold)
	err := l.ended("release")
	c.mu.Unlock()
	bye.end()
	bye.tell()
	return err
}

// giveUp gives a hold back to the store. It is called with mu and returns
// without.
func (c *Client) giveUp(ctx context.Context, h *hold, l *Lease) error {
	ln, asking := h.line, h.asking
	end := h.until()
	req := &driver.ReleaseRequest{Ref: h.ref()}
	if kept := h.granted.Add(h.ask.minHold); h.ask.minHold > 0 && kept.Until() > 0 && h.revoked == nil {
		if c.props.Bound == driver.ByConnection {
			c.linger(h, kept)
			c.mu.Unlock()
			l.endContext()
			return nil
		}
		req.Keep = kept.Until()
	}
	h.retire()
	c.work.Add(1)
	c.mu.Unlock()
	defer c.work.Done()
	l.endContext()

	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if asking != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseBudget)
		defer cancel()
		settled(ctx, asking)
	}
	released, err := c.sendRelease(ctx, req)

	c.mu.Lock()
	defer c.mu.Unlock()
	ln.stir()
	switch {
	case err == nil && !released:
		return c.errorf("release", h.line.name.Full, ErrLost, errors.New("the store no longer had it"))
	case err != nil:
		kind := c.store.Classify(err)
		if transient(kind) && !c.stopped {
			d := &debt{req: *req, until: c.endsBy(min(end, driver.Now().Add(h.ask.window)))}
			c.owe(d)
		}
		return c.errorf("release", h.line.name.Full, kindError(kind), err)
	}
	return nil
}
