package holdfast

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// hold is one grant of the store to this client. It has one lease, or several:
// reentrant ones, or readers that came in together. All fields but the
// deadline are under client.mu.
type hold struct {
	c     *Client
	line  *line
	owner driver.Owner
	token uint64 // of the store
	seq   uint8  // local sequence of the latest lease
	ask   ask
	label string

	leases  []*Lease
	granted driver.Instant
	window  time.Duration // as last granted
	// deadline is an Instant, read by Valid without the lock. Less than 0: it has
	// lapsed. 0: the hold is retired.
	deadline atomic.Int64
	revoked  error // why it was broken; it stays in the store until released
	ended    bool  // not ours any more, or on its way back

	alarm   alarm
	renewAt driver.Instant
	// unclaimed: the store keeps the hold only for a claim window yet.
	unclaimed bool
	// lingerUntil: all leases have ended, but MinHold keeps the name so long.
	lingerUntil driver.Instant
	asking      chan struct{} // open while a renewal is on its way
	batchCap    int           // after a late batch: the largest one to travel in
	relabel     bool          // the record names a former lease

	// Storage of the first lease, of the many holds that never have another.
	firstLease Lease
	firstSlot  [1]*Lease

	turnLast uint64 // the last waiter of this turn (handover.go)
	turnEnd  driver.Instant
}

func (h *hold) ref() driver.Ref {
	return driver.Ref{Name: h.line.name, Owner: h.owner, Mode: h.ask.mode, Token: h.token}
}

// newHold enters a grant, whose leases are to be added; under mu.
func (c *Client) newHold(ln *line, at *place, g driver.Grant, now, deadline driver.Instant) *hold {
	h := &hold{
		c: c, line: ln, owner: at.owner, token: g.Token, ask: at.ask, label: at.label,
		granted: now, window: g.Window, unclaimed: at.late,
	}
	h.setDeadline(deadline)
	h.leases = h.firstSlot[:0]
	c.holds[h.owner] = h
	ln.holds++
	every := h.renewEvery(cmp.Or(g.Window, at.ask.ttl))
	if g.Bare {
		every = min(every, bareTime)
	}
	h.renewAt = cmp.Or(at.sent, now).Add(every)
	return h
}

// setDeadline moves the deadline forward; MaxHold bounds it.
func (h *hold) setDeadline(d driver.Instant) {
	if h.ask.maxHold > 0 {
		d = min(d, h.granted.Add(h.ask.maxHold))
	}
	h.moveDeadline(func(old driver.Instant) driver.Instant { return max(old, d) })
}

// moveDeadline leaves one that has lapsed where it is.
func (h *hold) moveDeadline(to func(old driver.Instant) driver.Instant) {
	for {
		old := h.deadline.Load()
		if old < 0 || h.deadline.CompareAndSwap(old, int64(to(driver.Instant(old)))) {
			return
		}
	}
}

// lapsed tells whether the deadline has passed, and makes it final if so: who was
// told that the lease is lost must never see it trusted again, though a renewal
// were answered in that very moment. It needs no lock.
func (h *hold) lapsed() bool {
	for {
		deadline := h.deadline.Load()
		if driver.Now() < driver.Instant(deadline) {
			return false
		}
		if deadline <= 0 || h.deadline.CompareAndSwap(deadline, -deadline) {
			return true
		}
	}
}

// until is the deadline, also when it has lapsed.
func (h *hold) until() driver.Instant {
	deadline := h.deadline.Load()
	return driver.Instant(max(deadline, -deadline))
}

func (h *hold) left() time.Duration { return h.until().Until() }

// nextAlarm is when the keeper must look at the hold: at the next renewal or
// check, and at the deadline. Renewals are rounded down to a grid so that those
// of many leases fall together and travel in few batches.
func (h *hold) nextAlarm() driver.Instant {
	deadline := driver.Instant(h.deadline.Load())
	if h.lingerUntil != 0 {
		deadline = min(deadline, h.lingerUntil)
	}
	if h.asking != nil || h.revoked != nil || !h.wantsRenewal() {
		return deadline
	}
	grid := driver.Instant(min(h.ask.ttl/(renewFraction*10), time.Second))
	return min(h.renewAt-h.renewAt%grid, deadline)
}

// wantsRenewal tells whether the keeper asks the store about the hold. Even a
// hold without an end of its own is asked about, to learn of a break.
func (h *hold) wantsRenewal() bool {
	if h.window == 0 || h.unclaimed || h.lingerUntil != 0 {
		return true
	}
	for _, l := range h.leases {
		if l.renews {
			return h.ask.maxHold == 0 || h.renewTTL(driver.Now()) > 0
		}
	}
	return false
}

// renewTTL is what the next renewal asks for: no more than MaxHold leaves, 0 if
// that is nothing worth asking.
func (h *hold) renewTTL(now driver.Instant) time.Duration {
	ttl := max(h.ask.ttl, h.granted.Add(h.ask.minHold).Sub(now))
	if h.ask.maxHold > 0 {
		ttl = min(ttl, h.granted.Add(h.ask.maxHold).Sub(now))
	}
	if ttl < max(MinTTL, h.c.props.MinTTL) {
		return 0
	}
	return ttl
}

// drop takes a lease off the hold and tells whether it was the last.
func (h *hold) drop(l *Lease) (last bool) {
	h.leases = slices.DeleteFunc(h.leases, func(other *Lease) bool { return other == l })
	if l.renews && len(h.leases) > 0 {
		h.endAlone()
	}
	return len(h.leases) == 0
}

// renewOn makes a hold of leases that end by themselves one that is renewed, for
// one that joins it.
func (h *hold) renewOn() {
	if h.ask.noRenew && h.window == 0 {
		h.ask.noRenew = false
		h.setDeadline(never)
	}
}

// endAlone gives a hold without a window, of which no lease is renewed any more,
// the end of the one that lasts longest.
func (h *hold) endAlone() {
	var end driver.Instant
	for _, l := range h.leases {
		if l.renews || h.window > 0 {
			return
		}
		end = max(end, trustUntil(l.since, l.ttl))
	}
	h.ask.noRenew = true
	h.moveDeadline(func(old driver.Instant) driver.Instant { return min(old, end) })
	h.c.keeper.schedule(h)
}

// retire takes the hold off the books: nobody renews or trusts it from now on.
func (h *hold) retire() {
	if h.ended {
		return
	}
	h.ended = true
	h.deadline.Store(0)
	h.c.keeper.cancel(&h.alarm)
	delete(h.c.holds, h.owner)
	h.line.holds--
}

// extend notes an answer to a renewal that was sent at sent.
func (h *hold) extend(now, sent driver.Instant, window time.Duration) {
	h.batchCap, h.unclaimed = 0, false
	if window > 0 {
		h.window = window
		h.setDeadline(trustUntil(sent, window))
	}
	// An answer may rest on an older proof of life than this very request.
	h.renewAt = max(sent.Add(h.renewEvery(min(h.ask.ttl, cmp.Or(window, h.ask.ttl)))), now.Add(h.retryPause()))
}

// renewEvery is the time between two renewals of a window. A hold without an end
// of its own is looked at more often where that costs next to nothing: only so
// does its holder learn of a break.
func (h *hold) renewEvery(window time.Duration) time.Duration {
	if h.window == 0 && h.c.props.Local {
		return min(window/renewFraction, localCheck)
	}
	return window / renewFraction
}

// retry plans the next renewal after one that got no answer.
func (h *hold) retry(now driver.Instant) {
	h.renewAt = now.Add(h.retryPause())
}

func (h *hold) retryPause() time.Duration {
	return min(time.Second, max(h.ask.ttl/30, 10*time.Millisecond))
}
