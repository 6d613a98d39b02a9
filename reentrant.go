package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Reentrancy is explicit, as goroutines have no identity: an acquire is
// reentrant if it says so and proves, by the context of a lease or by a key,
// that it belongs to those who hold the name already. It then shares the one
// hold in the store and counts; the last release frees the name (law G5).

// reentrancyKey is a name and the key that a user gave for it.
type reentrancyKey struct{ name, key string }

// reenter finds the hold that an acquire may share. Without one both results
// are nil.
func (c *Client) reenter(w *waiter, name string, o *AcquireOptions) (*Lease, error) {
	w.held = heldKey{c, w.name.Key}
	outer, _ := w.ctx.Value(&w.held).(*Lease)
	if outer == nil && o.Key == "" {
		return nil, nil
	}
	c.mu.Lock()
	for outer != nil && outer.cause != nil { // an inner one that has ended; its outer may live
		outer, _ = outer.values.parent.Value(&w.held).(*Lease)
	}
	if o.Key != "" {
		w.key = reentrancyKey{w.name.Key, o.Key}
		if outer == nil {
			outer = c.keyed[w.key]
		}
	}
	if outer == nil {
		c.mu.Unlock()
		return nil, nil
	}
	h := outer.hold
	if err := c.shareable(h, w, name, o); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	more := !w.ask.noRenew && h.left() < w.ask.ttl/2 || w.ask.noRenew && h.left() < w.ask.ttl
	h.ask.ttl = max(h.ask.ttl, w.ask.ttl)
	if !w.ask.noRenew {
		h.renewOn()
	}
	l := h.addLease(w, outer.token, driver.Now())
	c.mu.Unlock()
	w.lease = l
	if more {
		if err := l.extendTo(w.ctx, w.ask.ttl); err != nil {
			_ = l.Release(w.ctx)
			return nil, err
		}
	}
	return l, nil
}

// enterKey makes a lease the one that its reentrancy key stands for, if there
// is none yet; under mu.
func (c *Client) enterKey(l *Lease) {
	if l.key != (reentrancyKey{}) && c.keyed[l.key] == nil {
		c.keyed[l.key] = l
	}
}

// leaveKey hands the key of a lease that ended to another of the hold that has
// it, if there is one; under mu.
func (c *Client) leaveKey(l *Lease) {
	if l.key == (reentrancyKey{}) || c.keyed[l.key] != l {
		return
	}
	delete(c.keyed, l.key)
	for _, other := range l.hold.leases {
		if other.key == l.key && other.cause == nil {
			c.keyed[l.key] = other
			return
		}
	}
}

// shareable says why a hold cannot be shared.
func (c *Client) shareable(h *hold, w *waiter, name string, o *AcquireOptions) error {
	switch {
	case !o.Reentrant && o.Key == "":
		return c.errorf("acquire", name, ErrConflict, textError("the context's own lease holds it: waiting would never end; set Reentrant to share it"))
	case h.ask.elects || w.ask.elects:
		return c.errorf("acquire", name, ErrInvalid, textError("a term of an election is not reentrant"))
	case h.ask.mode != w.ask.mode && h.ask.mode != Exclusive:
		return c.errorf("acquire", name, ErrConflict, textError("held shared: an exclusive lock would wait for itself"))
	case h.ask.mode == Permits || w.ask.mode == Permits:
		return c.errorf("acquire", name, ErrConflict, textError("permits are not reentrant"))
	}
	return nil
}

// extendTo makes the shared hold live at least ttl, as the inner lease asked.
func (l *Lease) extendTo(ctx context.Context, ttl time.Duration) error {
	h := l.hold
	if driver.Instant(h.deadline.Load()) == never {
		return nil
	}
	return h.askNow(ctx, l, "acquire", ttl)
}
