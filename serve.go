package holdfast

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// startServing asks the store on a goroutine of its own; under mu.
func (ln *line) startServing(serve func()) {
	ln.serving = true
	if ln.changed == nil {
		ln.changed = make(chan struct{}, 1)
	}
	ln.c.work.Go(serve)
}

// serve asks the store for the first waiter, again and again, until none is
// left or a place waits in the store's queue. It is the one waiter that all
// goroutines of this client together cost the store (law W5).
func (ln *line) serve() {
	c := ln.c
	for {
		p := ln.next()
		if p == nil {
			return
		}
		if c.blocker != nil && !p.ask.unfair && !ln.wasDown() {
			ln.serveBlocking(p, &ln.pause)
			continue
		}
		if c.overloaded() { // no use in asking what is not answered
			ln.rest(&ln.pause, 0)
			continue
		}
		ctx := c.life
		if !c.props.Local { // then its time is bounded, and Close may wait for it
			ctx = c.always
		}
		res, err := c.attempt(ctx, p, c.queuer != nil && !p.ask.unfair)
		switch {
		case ln.settle(ctx, p, res, err):
			return
		case err == nil && res.Status == driver.Granted:
			ln.pause = backoff{}
		default:
			ln.rest(&ln.pause, res.Queue.Remaining)
		}
	}
}

// wasDown tells whether the store is to be asked first if it is there again: a
// call that waits inside it could not tell.
func (ln *line) wasDown() bool {
	ln.c.mu.Lock()
	defer ln.c.mu.Unlock()
	return ln.down()
}

// next makes the place for the first waiter, or ends the serving.
func (ln *line) next() *place {
	ln.c.mu.Lock()
	defer ln.c.mu.Unlock()
	if ln.first == nil || ln.c.closed || ln.turn != nil && ln.turnOpen(driver.Now()) {
		ln.serving = false
		ln.tidy()
		return nil
	}
	p := ln.c.newPlace(ln.first, ln)
	p.seen = ln.c.arrived
	p.alone, ln.alone, ln.freed = ln.alone, false, false
	return p
}

// settle acts on the answer to an attempt that ctx bounded. If the place waits in the
// queue now, it is true, and the line belongs to whoever hears of the place.
func (ln *line) settle(ctx context.Context, p *place, res driver.AcquireResult, err error) (parked bool) {
	c := ln.c
	if err != nil {
		ln.refused(ctx, p, err)
		return false
	}
	switch res.Status {
	case driver.Granted:
		g, ok := res.Grant, true
		if p.mustClaim(g) { // by a hand-over that the store told by repeating itself
			g, ok = ln.claim(p, g)
		}
		if ok {
			ln.deliver(p, g)
		}
	case driver.Waiting:
		c.mu.Lock()
		ln.reason, ln.cause, ln.queue = ErrHeld, nil, res.Queue
		p.plan(res.Queue)
		ln.park(p)
		c.mu.Unlock()
		return true
	case driver.Held, driver.Gone:
		c.mu.Lock()
		ln.reason, ln.cause, ln.queue = ErrHeld, nil, res.Queue
		c.mu.Unlock()
	}
	return false
}

// refused notes an error. One that no repetition can mend ends the wait of all
// who ask for the same. A request that ctx cut short, which is a waiter's own, says
// nothing to the others.
func (ln *line) refused(ctx context.Context, p *place, err error) {
	c := ln.c
	kind := c.store.Classify(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	ln.alone = kind == driver.Indeterminate
	switch { // what it may have left is undone
	case !transient(kind):
		ln.fail(p.ask, c.errorf("acquire", ln.name.Full, kindError(kind), err))
	case kind == driver.Canceled, errors.Is(ctx.Err(), context.Canceled): // by the waiter himself
	case ctx.Err() != nil: // only his own error says so
		ln.noteDown(err)
	default:
		ln.storeDown(err)
	}
}

// fail ends the wait of all who ask for the same; under mu.
func (ln *line) fail(a ask, err error) {
	for w := ln.first; w != nil; {
		next := w.next
		if w.ask == a {
			ln.resolve(w, nil, err)
		}
		w = next
	}
}

// rest sleeps between two attempts: no longer than the present grant runs, and
// shorter if the waiters change.
func (ln *line) rest(pause *backoff, remaining time.Duration) {
	d := pause.next()
	if remaining > 0 {
		d = min(d, remaining+pollMin)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-ln.c.life.Done():
			return
		case <-ln.changed:
			ln.c.mu.Lock()
			rested := ln.first == nil || ln.freed
			ln.c.mu.Unlock()
			if rested {
				return
			}
		}
	}
}

// serveBlocking waits inside the store, until the first waiter wants something
// else.
func (ln *line) serveBlocking(p *place, pause *backoff) {
	c := ln.c
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	watching := make(chan struct{})
	c.work.Go(func() {
		defer close(watching)
		ln.cancelUnwanted(ctx, cancel, p.ask)
	})
	c.register(p)
	c.mu.Lock()
	ln.reason, ln.cause = ErrHeld, nil // what the store will say if it does not grant
	c.mu.Unlock()
	p.sent = driver.Now()
	g, err := c.blocker.Block(ctx, p.request(false))
	unwanted := ctx.Err() != nil
	cancel()
	<-watching
	if err == nil {
		ln.takeGrant(p, g)
		*pause = backoff{}
		return
	}
	if c.store.Classify(err) == driver.Indeterminate {
		c.abandon(p, true)
	} else {
		c.forget(p)
	}
	switch {
	case unwanted:
	case errors.Is(err, driver.ErrNoRoom):
		ln.poll(p, pause)
	default:
		ln.refused(c.life, p, err)
		ln.rest(pause, 0)
	}
}

// poll makes one attempt in place of a call that could not be parked, and rests
// if it was in vain.
func (ln *line) poll(p *place, pause *backoff) {
	p.owner, p.sent = newOwner(), 0
	res, err := ln.c.attempt(ln.c.life, p, false)
	if ln.settle(ln.c.life, p, res, err); err == nil && res.Status == driver.Granted {
		*pause = backoff{}
		return
	}
	ln.rest(pause, res.Queue.Remaining)
}

func (ln *line) cancelUnwanted(ctx context.Context, cancel func(), a ask) {
	for {
		ln.c.mu.Lock()
		wanted := ln.wants(a)
		ln.c.mu.Unlock()
		if !wanted {
			cancel()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ln.changed:
		}
	}
}

// deliver gives a grant to the waiters at the head who asked for it: to one, or
// to the run of readers there. A grant that is past its deadline, or that
// nobody wants any more, goes back.
func (ln *line) deliver(p *place, g driver.Grant) {
	ln.c.mu.Lock()
	defer ln.c.mu.Unlock()
	ln.hand(p, g)
}

// hand is deliver under mu.
func (ln *line) hand(p *place, g driver.Grant) {
	c := ln.c
	now := driver.Now()
	deadline, err := c.trust(p, g, now)
	delete(c.places, p.owner)
	if err != nil || c.closed || p.lost || !p.serves(ln.first) {
		if errors.Is(err, errBadGrant) {
			ln.fail(p.ask, c.grantError(ln.name.Full, err))
		}
		c.oweGrant(p, g)
		return
	}
	ln.reason, ln.cause, ln.queue = ErrHeld, nil, driver.Queue{} // for those behind: by us
	h := c.newHold(ln, p, g, now, deadline)
	h.label = ln.first.label
	h.relabel = h.label != p.label
	h.serve(ln.first, now)
	for p.ask.mode == Shared && p.serves(ln.first) && h.seq < turnHandOvers {
		h.seq++
		h.serve(ln.first, now)
	}
	h.beginTurn(p.seen)
}

// backoff is the pause between attempts: it doubles from 20 ms to 1 s, or from
// least to most, half of it by chance, so that waiters do not come in step.
type backoff struct{ d, least, most time.Duration }

func (b *backoff) next() time.Duration {
	b.d = min(max(b.d*2, cmp.Or(b.least, pollMin)), cmp.Or(b.most, pollMax))
	return b.d/2 + rand.N(b.d/2)
}

func (b *backoff) reset() { b.d = 0 }
