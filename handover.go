package holdfast

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Local hand-over: a release may pass the hold to the next waiter of this
// process without a word to the store. Tokens still grow, by the local
// sequence. So that other processes get their turn, one grant of the store is
// handed on at most 255 times and for 10 ms; then the process queues again like
// everybody. Where the store serves in order of arrival, only those get it who
// already waited when the grant came, so that nobody is overtaken by one who
// came later than the queue allows.

// beginTurn notes who may get the fresh hold handed over; under mu. seen is the
// latest waiter who was there when the grant was surely not yet made: one of
// several holds of a name passes to nobody who came later, since he may have
// seen another's larger token (law G3).
func (h *hold) beginTurn(seen uint64) {
	ln := h.line
	if h.c.opts.NoLocalHandOver || h.c.props.FinalTokens || !h.ask.handsOver() {
		return
	}
	switch {
	case h.ask.mode != Exclusive:
		h.turnLast = seen
	case !h.c.props.Fair:
		h.turnLast = math.MaxUint64
	case ln.first != nil:
		h.turnLast = ln.last.num
	default:
		return
	}
	h.turnEnd = h.granted.Add(turnTime)
	ln.turn = h
	ln.armTurn()
}

// handsOver tells whether holds of this kind can be passed on: what a hold
// promises from its grant on would not be true for the heir.
func (a ask) handsOver() bool {
	return a.mode != Shared && !a.noRenew && a.minHold == 0 && a.maxHold == 0 && !a.elects
}

// armTurn sees to it that the line is looked at when the turn is over, if somebody
// waits: the process must queue then, should the hold still be busy.
func (ln *line) armTurn() {
	if ln.first == nil || ln.turnArmed == ln.turn {
		return
	}
	ln.turnArmed = ln.turn
	left := ln.turn.turnEnd.Until()
	if ln.turnTimer == nil {
		ln.turnTimer = time.AfterFunc(left, func() {
			ln.c.mu.Lock()
			defer ln.c.mu.Unlock()
			ln.turnArmed = nil
			ln.stir()
		})
	} else {
		ln.turnTimer.Reset(left)
	}
}

// turnOpen tells whether the first waiter will be handed the hold that is here
// now, so that nobody need ask the store for him; under mu.
func (ln *line) turnOpen(now driver.Instant) bool {
	return ln.turn != nil && ln.first != nil && ln.turn.inherits(ln.first, now)
}

// inherits tells whether a release now would pass the hold to w; under mu.
func (h *hold) inherits(w *waiter, now driver.Instant) bool {
	return !h.ended && h.revoked == nil && w.num <= h.turnLast && h.seq < turnHandOvers && now < h.turnEnd && w.ask == h.ask &&
		(h.window == 0 || driver.Instant(h.deadline.Load()).Sub(now) > h.window/2)
}

// passOn hands the hold to the next waiter, if the turn allows; under mu.
func (h *hold) passOn() bool {
	heir := h.line.first
	if heir == nil || heir.num > h.turnLast {
		return false
	}
	now := driver.Now()
	if !h.inherits(heir, now) {
		return false
	}
	h.seq++
	h.label, h.relabel = heir.label, true
	heir.handedOver = true
	h.serve(heir, now)
	return true
}

// serve gives a waiter a lease of the hold, with the latest token, and shares
// it with those who wait with the same reentrancy key; under mu.
func (h *hold) serve(w *waiter, now driver.Instant) {
	key := w.key
	l := h.addLease(w, h.c.fullToken(h.token, h.seq), now)
	h.line.resolve(w, l, nil) // w is its goroutine's from here on
	if key == (reentrancyKey{}) {
		return
	}
	for kin := h.line.first; kin != nil; {
		next := kin.next
		if kin.key == key && (h.ask.mode == Exclusive || kin.ask.mode == h.ask.mode) {
			ttl, share := kin.ask.ttl, h.addLease(kin, l.token, now)
			h.line.resolve(kin, share, nil)
			h.stretch(ttl, now)
		}
		kin = next
	}
}

// stretch makes the hold live at least ttl, as one who shares it asked; it is
// renewed for that at once.
func (h *hold) stretch(ttl time.Duration, now driver.Instant) {
	if ttl > h.ask.ttl {
		h.ask.ttl, h.renewAt = ttl, now
		h.c.keeper.schedule(h)
	}
}

// addLease gives a waiter its share of the hold; under mu.
func (h *hold) addLease(w *waiter, token uint64, now driver.Instant) *Lease {
	l := newLease(h, w, token, now)
	h.leases = append(h.leases, l)
	h.c.enterKey(l)
	h.c.keeper.schedule(h)
	return l
}
