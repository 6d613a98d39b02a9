package holdfast

import (
	"context"
	"time"
)

// lastAttempt is made when a bounded wait runs out: the message of a grant may
// have been lost, or the name become free since the last look. It takes a tenth
// of the wait at most, or 50 ms.
func (ln *line) lastAttempt(w *waiter, wait time.Duration) (*Lease, error) {
	c := ln.c
	done, err := c.enter("acquire", ln.name.Full)
	if err != nil { // then Close has answered him
		return ln.leave(w, ErrTimeout)
	}
	defer done()
	ctx, cancel := context.WithTimeout(w.ctx, min(max(wait/10, minMargin), c.requestTimeout(w.ask.ttl)))
	defer cancel()
	c.mu.Lock()
	p, first := ln.place, !w.done && ln.first == w
	c.mu.Unlock()
	switch {
	case !first || c.blocker != nil && !w.ask.unfair:
		// Somebody of this process is before us, or the store itself would have
		// let us in.
	case p != nil:
		ln.askPlace(ctx, w, p)
	default:
		ln.askAgain(ctx, w)
	}
	if w.ctx.Err() != nil {
		return ln.leave(w, w.ctx.Err())
	}
	return ln.leave(w, ErrTimeout)
}

// askPlace asks what became of the place, and waits for the delivery if it was
// granted.
func (ln *line) askPlace(ctx context.Context, w *waiter, p *place) {
	c := ln.c
	beaten := make(chan struct{})
	if !c.background(func() { c.beat([]*place{p}); close(beaten) }) {
		return
	}
	select {
	case <-beaten:
	case <-w.ready:
	case <-ctx.Done():
		return
	}
	c.mu.Lock()
	granted := ln.place != p
	c.mu.Unlock()
	if granted {
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
	}
}

// askAgain makes an attempt on a store that keeps no places.
func (ln *line) askAgain(ctx context.Context, w *waiter) {
	c := ln.c
	c.mu.Lock()
	p := c.newPlace(w, ln)
	p.seen = w.num
	c.mu.Unlock()
	res, err := c.attempt(ctx, p, false)
	ln.settle(ctx, p, res, err)
}

// newestHolder is who holds the name, for people. A store that parks calls has
// said nothing since the wait began, so it is asked, if that costs nothing.
func (ln *line) newestHolder() *Holder {
	c := ln.c
	if c.blocker == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ln.holder()
	}
	if c.inspector == nil || !c.props.Local {
		return nil
	}
	done, err := c.enter("inspect", ln.name.Full)
	if err != nil {
		return nil
	}
	defer done()
	r, err := c.inspector.Inspect(c.life, ln.name)
	if err != nil || len(r.Holders) == 0 {
		return nil
	}
	return c.newHolder(&r.Holders[0])
}
