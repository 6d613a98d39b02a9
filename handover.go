package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Local hand-over: a release may pass the hold to the next waiter of this
// process without a word to the store. Tokens still grow, by the local
// sequence. So that other processes get their turn, one grant of the store is
// handed on at most 255 times and for 10 ms, and only to those who already
// waited when it came; then the process queues again like everybody.

// beginTurn notes who may get the fresh hold handed over: of permits only those
// who were there when the grant was surely not yet made, since a later one may
// have seen another's larger token; under mu.
func (h *hold) beginTurn(seen uint64) {
	if h.c.opts.NoLocalHandOver || h.c.props.FinalTokens || !h.ask.handsOver() || h.line.first == nil {
		return
	}
	h.turnLast = h.line.last.num
	if h.ask.mode != Exclusive {
		h.turnLast = min(h.turnLast, seen)
	}
	h.turnEnd = driver.Now().Add(turnTime)
	h.line.armTurn(h)
}

// handsOver tells whether holds of this kind can be passed on: what a hold
// promises from its grant on would not be true for the heir.
func (a ask) handsOver() bool {
	return a.mode != Shared && !a.noRenew && a.minHold == 0 && a.maxHold == 0
}

// armTurn looks at the line again when the turn is over: the process must queue
// then, if the hold is still busy and somebody waits.
func (ln *line) armTurn(h *hold) {
	again := func() {
		ln.c.mu.Lock()
		defer ln.c.mu.Unlock()
		ln.stir()
	}
	if ln.turnTimer == nil {
		ln.turnTimer = time.AfterFunc(h.turnEnd.Until(), again)
	} else {
		ln.turnTimer.Reset(h.turnEnd.Until())
	}
	ln.turn = h
}

// turnOpen tells whether the first waiter will be handed the hold that is here
// now, so that nobody need ask the store for him; under mu.
func (ln *line) turnOpen() bool {
	return ln.turn != nil && ln.first != nil && ln.turn.inherits(ln.first)
}

// inherits tells whether a release now would pass the hold to w; under mu.
func (h *hold) inherits(w *waiter) bool {
	return !h.ended && h.revoked == nil && w.ask == h.ask && w.num <= h.turnLast && h.seq < turnHandOvers &&
		driver.Now() < h.turnEnd && (h.window == 0 || h.left() > h.window/2)
}

// passOn hands the hold to the next waiter, if the turn allows; under mu.
func (h *hold) passOn() bool {
	heir := h.line.first
	if heir == nil || !h.inherits(heir) {
		return false
	}
	h.seq++
	h.label, h.relabel = heir.label, true
	heir.handedOver = true
	h.serve(heir, driver.Now())
	return true
}

// serve gives a waiter a lease of the hold, with the latest token, and shares
// it with those who wait with the same reentrancy key; under mu.
func (h *hold) serve(w *waiter, now driver.Instant) {
	l := h.addLease(w, h.c.fullToken(h.token, h.seq), now)
	h.line.resolve(w, l, nil)
	if w.key == (reentrancyKey{}) {
		return
	}
	for kin := h.line.first; kin != nil; {
		next := kin.next
		if kin.key == w.key && (h.ask.mode == Exclusive || kin.ask.mode == h.ask.mode) {
			h.line.resolve(kin, h.addLease(kin, l.token, now), nil)
			h.stretch(kin.ask.ttl, now)
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
