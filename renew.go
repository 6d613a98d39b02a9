package holdfast

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// batchSize is how many of the holds travel together.
func batchSize(most int, holds []*hold) int {
	for i, h := range holds {
		if most = min(most, h.travelsWith()); i >= most {
			return max(i, 1)
		}
	}
	return len(holds)
}

// travelsWith is the size of the largest batch that the hold travels in. After
// one that was late it is a quarter of that, so that after a few rounds, long
// before any lease ends, one that blocks travels alone.
func (h *hold) travelsWith() int {
	if h.batchCap == 0 {
		return math.MaxInt
	}
	return h.batchCap
}

// batch is renewals that travel together. While it is away, its alarm stands for
// those of its holds: so a burst of renewals moves few alarms.
type batch struct {
	holds    []*hold
	answered chan struct{} // closed then
	alarm    alarm
}

// renew sends one batch of renewals.
func (c *Client) renew(b *batch) {
	batch := b.holds
	ttl := MaxTTL
	reqs := make([]driver.RenewRequest, len(batch))
	c.mu.Lock()
	now := driver.Now()
	for i, h := range batch {
		reqs[i] = driver.RenewRequest{Ref: h.ref(), TTL: h.renewTTL(now)}
		if h.relabel {
			reqs[i].Label = h.label
		}
		ttl = min(ttl, h.ask.ttl)
	}
	c.mu.Unlock()
	if len(batch) > 1 {
		ttl /= 4 // late is late enough to try without whoever blocks
	}
	ctx, cancel := c.bounded(context.Background(), ttl)
	sent := driver.Now()
	results := c.store.Renew(ctx, reqs)
	cancel()
	c.noteRenewals(b, reqs, results, sent)
}

func (c *Client) noteRenewals(b *batch, reqs []driver.RenewRequest, results []driver.RenewResult, sent driver.Instant) {
	var byes []*farewell
	var news []renewal
	c.mu.Lock()
	c.keeper.cancel(&b.alarm)
	close(b.answered)
	now := driver.Now()
	for i, h := range b.holds {
		res := results[i]
		h.asking = nil
		if h.ended {
			continue
		}
		if len(h.leases) > 0 && c.opts.Observe != nil {
			news = append(news, renewal{h.leases[0], h.left(), res})
		}
		if res.Err != nil {
			h.retry(now)
			h.batchCap = max(1, len(b.holds)/4)
			c.keeper.schedule(h)
			continue
		}
		if reqs[i].Label == h.label {
			h.relabel = false
		}
		byes = append(byes, c.renewed(h, now, sent, res, true))
	}
	c.mu.Unlock()
	for _, bye := range byes {
		bye.end()
	}
	for _, n := range news {
		n.tell(c)
	}
	for _, bye := range byes {
		bye.tell()
	}
}

// renewal is what a hook is told of an answer.
type renewal struct {
	lease *Lease
	left  time.Duration
	res   driver.RenewResult
}

func (r renewal) tell(c *Client) {
	if c.opts.Observe == nil {
		return
	}
	e := Event{Kind: EventRenewed, Name: r.lease.Name(), Mode: r.lease.Mode(), Token: r.lease.token, Left: r.left}
	switch {
	case r.res.Err != nil:
		e.Kind, e.Err = EventRenewFailed, r.res.Err
	case r.res.Status != driver.Renewed:
		return // its end is told
	}
	c.observe(r.lease.Context(), e)
}

// beat sends one batch of heartbeats.
func (c *Client) beat(batch []*place) {
	refs, ttl := make([]driver.Ref, len(batch)), MaxTTL
	c.mu.Lock()
	seen := c.arrived
	c.mu.Unlock()
	for i, p := range batch {
		refs[i] = p.ref()
		ttl = min(ttl, p.ask.ttl)
	}
	ctx, cancel := c.bounded(context.Background(), ttl)
	sent := driver.Now()
	results := c.queuer.Beat(ctx, refs)
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range batch {
		p.beaten(sent, seen, results[i])
	}
}

// settled waits until no renewal of the hold is on its way: none may reach the
// store after its release has returned (law L2). ctx bounds the wait.
func settled(ctx context.Context, asking <-chan struct{}) {
	if asking == nil {
		return
	}
	select {
	case <-asking:
	case <-ctx.Done():
	}
}
