package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// release ends one lease of the hold. The last one passes the hold on to a
// waiter of this process, or gives it back to the store.
func (h *hold) release(ctx context.Context, l *Lease) error {
	c := h.c
	c.mu.Lock()
	cause := l.ended("release")
	l.finish(ErrReleased)
	if h.ended || errors.Is(cause, ErrReleased) {
		c.mu.Unlock()
		if errors.Is(cause, ErrReleased) {
			return nil // by Close, which released it
		}
		return cause
	}
	last := h.drop(l)
	var heirs []*waiter
	if last {
		heirs = h.passOn()
	}
	if !last || heirs != nil {
		c.mu.Unlock()
		l.endContext()
		c.tellReleased(l, nil)
		for _, w := range heirs {
			c.tellAcquired(w, EventHandedOver)
		}
		return cause
	}
	err := c.giveUp(ctx, h, l)
	c.tellReleased(l, err)
	if err == nil {
		err = cause
	}
	return err
}

// giveUp gives a hold back to the store. It is called with mu and returns
// without.
func (c *Client) giveUp(ctx context.Context, h *hold, l *Lease) error {
	ln, asking := h.line, h.asking
	end := driver.Instant(h.deadline.Load())
	req := &h.last
	req.Ref = h.ref()
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

	ctx = context.WithoutCancel(ctx)
	if asking != nil || !c.props.Local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseBudget)
		defer cancel()
	}
	settled(ctx, asking)
	released, err := c.sendRelease(ctx, req)

	c.mu.Lock()
	defer c.mu.Unlock()
	ln.stir()
	switch {
	case err == nil && !released:
		return c.errorf("release", h.name.Full, ErrLost, errors.New("the store no longer had it"))
	case err != nil:
		kind := c.store.Classify(err)
		if transient(kind) && !c.stopped {
			d := &debt{req: *req, until: min(end, driver.Now().Add(h.ask.window))}
			c.owe(d)
		}
		return c.errorf("release", h.name.Full, kindError(kind), err)
	}
	return nil
}

func (c *Client) tellReleased(l *Lease, err error) {
	if c.opts.Observe != nil {
		c.observe(l.ctx, Event{Kind: EventReleased, Name: l.Name(), Mode: l.Mode(), Token: l.token, Took: driver.Now().Sub(l.since), Err: err})
	}
}

// Close releases all leases (or leaves them, see Options.LeaveOnClose), ends
// all waits with ErrClosed and all goroutines, and closes the store. It takes
// about 5 s at most if the store does not answer; the error then names what
// may remain there until it expires. Holds that MinHold keeps on a store bound
// to the connection are waited for. It may be called at any time and again; a
// repeated Close returns what the first one did.
func (c *Client) Close() error {
	select {
	case c.closeOnce <- struct{}{}:
		c.closeErr = c.close()
		close(c.closeDone)
	case <-c.closeDone:
	default:
		<-c.closeDone // another is at it
	}
	return c.closeErr
}

func (c *Client) close() error {
	c.mu.Lock()
	c.closed = true
	for _, ln := range c.lines {
		for ln.first != nil {
			ln.resolve(ln.first, nil, c.errorf("acquire", ln.name.Full, ErrClosed, nil))
		}
	}
	ended := c.closeHolds()
	c.mu.Unlock()
	c.end()
	for _, l := range ended {
		l.endContext()
	}
	c.work.Wait()
	err := c.settleDebts()
	c.mu.Lock()
	c.stopped = true
	c.keeper.timer.Stop()
	for _, ln := range c.lines {
		if ln.turnTimer != nil {
			ln.turnTimer.Stop()
		}
	}
	c.mu.Unlock()
	c.keeping.Wait()
	if c.releases != nil {
		c.acquires.wg.Wait()
		c.releases.wg.Wait()
	}
	if err != nil {
		c.log.Warn("holdfast: closed with releases unanswered", "store", c.props.Store, "error", err)
		err = c.errorf("close", "", ErrUnavailable, err)
	}
	if cerr := c.store.Close(); cerr != nil {
		err = errors.Join(err, c.errorf("close", "", kindError(c.store.Classify(cerr)), cerr))
	}
	return err
}

// closeHolds ends all holds: their releases become debts; under mu. The
// contexts of the returned leases are still to be ended.
func (c *Client) closeHolds() (ended []*Lease) {
	for _, h := range c.holds {
		for _, l := range h.leases {
			l.finish(c.errorf("hold", h.name.Full, ErrReleased, ErrClosed))
			ended = append(ended, l)
		}
		req := driver.ReleaseRequest{Ref: h.ref()}
		if kept := h.granted.Add(h.ask.minHold); h.ask.minHold > 0 && kept.Until() > 0 {
			if c.props.Bound == driver.ByConnection {
				if h.lingerUntil == 0 {
					c.linger(h, kept)
				}
				continue
			}
			req.Keep = kept.Until()
		}
		h.retire()
		if !c.opts.LeaveOnClose {
			c.owe(&debt{req: req})
		}
	}
	return ended
}
