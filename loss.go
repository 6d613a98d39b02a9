package holdfast

import (
	"cmp"

	"github.com/holdfast-go/holdfast/driver"
)

// lose ends the hold and its leases with ErrLost, or ErrBroken if a person forced
// it (forced is the reason then); under mu.
func (c *Client) lose(h *hold, why, forced string) *farewell {
	if h.ended {
		return nil
	}
	kind := ErrLost
	if h.revoked != nil || forced != "" && !h.lapsed() {
		kind, why = ErrBroken, cmp.Or(forced, why)
	}
	left := h.left()
	if h.lingerUntil != 0 {
		c.lingering--
		c.paid()
	}
	bye := c.bid(h.leases, c.errorf("hold", h.line.name.Full, kind, textError(why)), left) // before the deadline is taken away, see Lease.look
	h.retire()
	h.line.stir()
	return bye
}

// revoke ends the leases with ErrBroken, while the hold stays in the store until
// its holder releases it or it ends: only that acknowledges a break (law L5).
func (c *Client) revoke(h *hold, reason string) *farewell {
	if h.ended || h.revoked != nil {
		return nil
	}
	if h.lingerUntil != 0 { // nobody is left to be told
		c.endLinger(h)
		return nil
	}
	if h.lapsed() { // somebody may have seen it lost
		return c.expire(h)
	}
	h.revoked = c.errorf("hold", h.line.name.Full, ErrBroken, textError(reason))
	c.keeper.schedule(h)
	return c.bid(h.leases, h.revoked, h.left())
}

// expire loses a hold whose deadline has passed. The store may keep it longer
// than we trust it, so it is given back.
func (c *Client) expire(h *hold) *farewell {
	why := "not renewed in time"
	if h.ask.maxHold > 0 && driver.Now() >= h.granted.Add(h.ask.maxHold) {
		why = "max hold reached"
	} else if h.ask.noRenew {
		why = "its time is over"
	}
	now, req := driver.Now(), driver.ReleaseRequest{Ref: h.ref()}
	if kept := h.granted.Add(h.ask.minHold); c.props.Bound == driver.ByLease && kept > now {
		req.Keep = kept.Sub(now)
	}
	bye := c.lose(h, why, "")
	c.owe(&debt{req: req, until: c.endsBy(now.Add(h.ask.window))})
	return bye
}

// endsBy is until when a release is owed at most: a lease ends by itself. What
// lives by a session may outlast our trust for as long as the session is kept
// alive for others.
func (c *Client) endsBy(end driver.Instant) driver.Instant {
	if c.props.Bound == driver.ByConnection {
		return 0
	}
	return end
}

// linger keeps a hold without leases until MinHold is over, on a store where it
// lives by our connection; under mu.
func (c *Client) linger(h *hold, until driver.Instant) {
	h.lingerUntil = until
	h.leases = nil
	c.lingering++
	c.keeper.schedule(h)
}

func (c *Client) endLinger(h *hold) {
	c.lingering--
	c.paid()
	req := driver.ReleaseRequest{Ref: h.ref()}
	h.retire()
	h.line.stir()
	c.owe(&debt{req: req})
}
