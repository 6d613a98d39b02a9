package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// place is one attempt of the client at a name, under an owner of its own: a
// request, a place in the store's queue, at last a hold. An attempt that came
// to nothing is never repeated under the same owner, so that a late answer or
// message cannot be taken for one to the new attempt.
type place struct {
	c     *Client
	ln    *line // nil if the attempt stands in no line
	name  driver.Name
	owner driver.Owner
	ask   ask
	label string
	// sent is when the latest request was sent that the store surely handled
	// before it granted the place: the enqueue or the last beat that was
	// answered Waiting (law G4).
	sent driver.Instant
	// seen is the number of the latest waiter when that request was sent. A grant
	// of which others may hold a part serves nobody who came later: he may have
	// seen a larger token already (law G3).
	seen  uint64
	alone bool // the attempt before blocked: see committer
	late  bool // granted for a claim window only, which the keeper extends
	req   driver.AcquireRequest

	// Under client.mu.
	over   bool // its waiting is over: a late answer to a beat does not count
	lost   bool // the store said so before we knew that it was ours
	missed bool // signals may have been lost while a beat was on its way
	heard  bool // there is news
	news   news // what became of the place in the queue; the first counts
	alarm  alarm
	beats  int
}

type news struct {
	gone  bool
	grant driver.Grant
}

// newPlace begins an attempt for a waiter, in its line or (nil) in none; under
// mu where others share the line.
func (c *Client) newPlace(w *waiter, ln *line) *place {
	p := &w.firstPlace
	if p.c != nil { // in use
		p = new(place)
	}
	p.c, p.ln, p.name, p.owner, p.ask, p.label = c, ln, w.name, newOwner(), w.ask, w.label
	return p
}

func (p *place) ref() driver.Ref {
	return driver.Ref{Name: p.name, Owner: p.owner, Mode: p.ask.mode}
}

func (p *place) request(queue bool) *driver.AcquireRequest {
	window := p.ask.window
	p.req = driver.AcquireRequest{
		Name: p.name, Owner: p.owner, Label: p.label, Mode: p.ask.mode, N: p.ask.n, Limit: p.ask.limit,
		TTL: window, Queue: queue, Unfair: p.ask.unfair, Claim: min(claimWindow, window), Bare: p.ask.bare(),
	}
	return &p.req
}

// bare tells whether the store may learn the token of the grant later: not if no
// renewal is sure to bring it.
func (a ask) bare() bool { return a.mode == Exclusive && !a.noRenew && a.maxHold == 0 }

// attempt sends one request for the place. Whatever it may have left behind
// after an error is undone in the background.
func (c *Client) attempt(ctx context.Context, p *place, queue bool) (driver.AcquireResult, error) {
	c.register(p)
	res, err := c.send(ctx, p, queue)
	switch {
	case err != nil && c.store.Classify(err) == driver.Indeterminate:
		c.abandon(p, true)
	case err == nil && res.Leftover:
		c.abandon(p, false)
	case err != nil || res.Status == driver.Held || res.Status == driver.Gone:
		c.forget(p)
	}
	if res.Grant.Sent != 0 {
		p.sent = res.Grant.Sent
	}
	return res, err
}

// register makes the place known to signals, which may overtake the answer. It
// stays so until it is a hold or given up.
func (c *Client) register(p *place) {
	if c.signals {
		c.mu.Lock()
		c.places[p.owner] = p
		c.mu.Unlock()
	}
}

func (c *Client) forget(p *place) {
	if c.signals {
		c.mu.Lock()
		delete(c.places, p.owner)
		c.mu.Unlock()
	}
}

func (c *Client) send(ctx context.Context, p *place, queue bool) (driver.AcquireResult, error) {
	ctx, cancel := c.bounded(ctx, p.ask.ttl)
	defer cancel()
	if p.sent == 0 && (!c.props.Local || c.props.Bound == driver.ByLease || p.ask.noRenew) {
		p.sent = driver.Now()
	}
	if c.committer == nil {
		return c.store.Acquire(ctx, p.request(queue))
	}
	return c.committer.acquire(ctx, p.request(queue), p.alone)
}

// serves tells whether a grant of the place may go to w.
func (p *place) serves(w *waiter) bool {
	return w != nil && w.ask == p.ask && (p.ask.mode == Exclusive || w.num <= p.seen)
}
