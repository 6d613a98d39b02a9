package holdfast

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waiting in the store's queue: a place, its heartbeats, the grant that
// another's release makes to it, and the claim that turns the short window of
// such a grant into a lease.

// plan schedules the next beat of a place; under mu. The first ones come early,
// in case the message of a grant was lost. Later ones come when the present
// grant would end, so that a dead holder is found, those in front first.
func (p *place) plan(q driver.Queue) {
	p.beats++
	due := beatLate
	if p.beats <= beatEarlyCount {
		due = beatEarly
	}
	if q.Remaining > 0 {
		due = min(due, q.Remaining+beatRankStep*time.Duration(1+q.Ahead))
	}
	if q.Again > 0 {
		due = min(due, q.Again)
	}
	if p.missed {
		p.missed, due = false, 0
	}
	now, step := driver.Now(), driver.Instant(beatRankStep)
	p.alarm.at = now.Add(due)
	if due > 0 { // on a grid, so that the beats of many places travel together
		if p.alarm.at -= p.alarm.at % step; p.alarm.at <= now {
			p.alarm.at += step
		}
	}
	p.c.keeper.place(&p.alarm, p)
}

// tell notes what became of the place; under mu.
func (p *place) tell(n news) {
	if p.over || p.heard {
		return
	}
	p.heard, p.news = true, n
	if p.ln != nil && p.ln.place == p {
		p.ln.unpark()
	}
}

// beaten notes the answer to a beat that was sent at sent; under mu.
func (p *place) beaten(sent driver.Instant, seen uint64, res driver.BeatResult) {
	if p.over {
		return
	}
	switch {
	case res.Err != nil:
		p.unbeaten(res.Err)
	case res.Status == driver.Waiting:
		if sent > p.sent {
			p.sent, p.seen = sent, seen
		}
		p.ln.reason, p.ln.cause, p.ln.queue = ErrHeld, nil, res.Queue
		p.plan(res.Queue)
	case res.Status == driver.Granted:
		p.tell(news{grant: res.Grant})
	case res.Status == driver.Gone, res.Status == driver.Held:
		p.tell(news{gone: true})
	}
}

// unbeaten notes that a beat failed. An error that no repetition can mend ends the
// wait, as that of an attempt does; under mu.
func (p *place) unbeaten(err error) {
	if kind := p.c.store.Classify(err); !transient(kind) {
		p.ln.fail(p.ask, p.c.errorf("acquire", p.name.Full, kindError(kind), err))
		return
	}
	p.alarm.at = driver.Now().Add(beatEarly)
	if p.missed {
		p.missed, p.alarm.at = false, driver.Now()
	}
	p.c.keeper.place(&p.alarm, p)
	p.ln.storeDown(err)
}

// park leaves the line to a place that waits in the store's queue. That costs no
// goroutine: whoever hears of the place, or finds it unwanted, goes on. Under mu.
func (ln *line) park(p *place) {
	ln.place = p
	switch {
	case ln.c.closed || !ln.wants(p.ask):
		ln.dropPlace()
	case p.heard: // the news overtook the answer
		ln.unpark()
	}
}

// leavePlace ends the parking; under mu.
func (ln *line) leavePlace() *place {
	p := ln.place
	ln.place, p.over = nil, true
	ln.c.keeper.cancel(&p.alarm)
	return p
}

// unpark goes on when there is news of the place. A grant that can be trusted as it
// is goes to the waiter at once, on the goroutine that brought it; all else may need
// the store. Under mu.
func (ln *line) unpark() {
	p := ln.leavePlace()
	if n := p.news; n.gone || !p.fresh(n.grant) {
		ln.startServing(func() { ln.serveOn(p, n) })
		return
	}
	ln.hand(p, p.news.grant)
	ln.pause, ln.serving = backoff{}, false
	ln.stir()
}

// dropPlace gives up a place that nobody wants any more; under mu.
func (ln *line) dropPlace() {
	p := ln.leavePlace()
	delete(ln.c.places, p.owner)
	ln.c.owe(&debt{req: driver.ReleaseRequest{Ref: p.ref(), Abandon: true}})
	ln.serving = false
	ln.stir()
}

// serveOn goes on with a place that is gone, or has a grant that must be claimed
// first.
func (ln *line) serveOn(p *place, n news) {
	switch {
	case n.gone:
		ln.c.forget(p)
		ln.rest(&ln.pause, 0)
	case ln.takeGrant(p, n.grant):
		ln.pause = backoff{}
	default: // the store forgot it: the next attempt is a new owner's
		ln.rest(&ln.pause, 0)
	}
	ln.serve()
}

// fresh tells whether a grant is known of so early that most of its window is left.
// Its trust counts from the last request that was answered with "waiting".
func (p *place) fresh(g driver.Grant) bool {
	p.sent, p.late = cmp.Or(g.Sent, p.sent), g.Window < p.ask.window
	return g.Window == 0 || !p.mustClaim(g) && driver.Now().Sub(p.sent) <= g.Window/renewFraction
}

// takeGrant trusts the grant of a place, which lives for a claim window counted
// from the last request that the store answered with "waiting". While most of
// that is left the waiter has it without a further exchange, and the keeper
// claims it soon; else it is claimed first.
func (ln *line) takeGrant(p *place, g driver.Grant) bool {
	if p.fresh(g) {
		ln.deliver(p, g)
		return true
	}
	claimed, ok := ln.claim(p, g)
	if ok {
		ln.deliver(p, claimed)
	}
	return ok
}

// mustClaim tells whether a grant has to be claimed before it is used: a term of an
// election, whose work would be called off as if the term were about to end.
func (p *place) mustClaim(g driver.Grant) bool {
	return p.ask.elects && g.Window > 0 && g.Window < p.ask.window/4*3
}

// claim renews the grant of a place. Without an answer it asks again as long as
// the window can still be open at the store; then the place is given up.
func (ln *line) claim(p *place, g driver.Grant) (driver.Grant, bool) {
	c := ln.c
	ref := p.ref()
	ref.Token = g.Token
	for end := driver.Now().Add(g.Window); ; {
		sent := driver.Now()
		ctx, cancel := c.bounded(context.WithoutCancel(c.life), p.ask.ttl)
		res := c.store.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: p.ask.window}})[0]
		cancel()
		switch {
		case res.Err == nil && res.Status == driver.Renewed:
			p.sent, g.Window, p.late = cmp.Or(res.Sent, sent), res.Window, false
			return g, true
		case res.Err == nil && res.Status == driver.Lost:
			c.forget(p)
			return g, false
		case res.Err == nil: // broken before we had it
			c.forget(p)
			c.giveBack(p, g)
			return g, false
		case driver.Now() >= end || c.life.Err() != nil:
			c.forget(p)
			c.giveBack(p, g)
			return g, false
		}
		c.sleep(c.life, pollMin)
	}
}

func (c *Client) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
