package holdfast

import (
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// When the committer's batches leave: see there.

const (
	// flights is how many batches may be on their way by a route at once, so that one
	// blocked request does not stall all.
	flights = 8
	// few calls of a mixer have as many flights; more have one, since there a batch twice
	// as large costs far less than two.
	few = 8
	// patience is how long that one may be away until another is begun.
	patience = 50 * time.Millisecond
	// yields is how often those to whom it brought answers may go first, and ask again,
	// before it leaves again: about 50 µs. Where others compute, a yield takes much
	// longer: then moment is the bound.
	yields = 200
	moment = time.Millisecond
)

// full tells whether no more may be on their way at once; under mu.
func (g *committer) full(l *lane) bool {
	if g.mixer != nil && l.inAir+len(l.queue) > few && l.flying > l.late {
		return true
	}
	return l.flying >= flights
}

// flight is a batch that is away.
type flight struct {
	route route
	lane  *lane
	calls int
	watch *watch // of a mixer's
}

// watch sees that a flight takes long; under committer.mu.
type watch struct {
	timer  *time.Timer
	late   bool
	landed bool
}

// depart begins a flight of some calls; under mu. Nobody waits for what blocked once.
func (g *committer) depart(r route, l *lane, calls int, blocked bool) flight {
	f := flight{route: r, lane: l, calls: calls}
	l.inAir += calls
	switch {
	case g.mixer == nil:
	case blocked:
		f.watch = &watch{late: true}
		l.late++
	default:
		f.watch = &watch{}
		g.wg.Add(1) // until the timer has fired, or never will
		f.watch.timer = time.AfterFunc(patience, func() {
			defer g.wg.Done()
			g.delayed(f)
		})
	}
	return f
}

// delayed lets others not wait for a flight that takes long.
func (g *committer) delayed(f flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.watch.landed {
		return
	}
	f.watch.late = true
	f.lane.late++
	if len(f.lane.queue) > 0 && !g.full(f.lane) {
		g.begin(f.route, f.lane)
	}
}

// board takes a flight for one call, if one is free and nobody waits.
func (g *committer) board(r route, blocked bool) (f flight, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(r)
	if g.full(l) || len(l.queue) > 0 {
		return flight{}, false
	}
	l.flying++
	if l.batched { // those to whom the batch brought answers may be about to ask as well
		g.mu.Unlock()
		runtime.Gosched()
		g.mu.Lock()
		if len(l.queue) > 0 {
			l.flying--
			return flight{}, false
		}
	}
	return g.depart(r, l, 1, blocked), true
}

// begin begins one more flight; under mu.
func (g *committer) begin(r route, l *lane) {
	l.flying++
	g.wg.Go(func() { g.fly(r, l) })
}

// land ends a flight, and begins another for those who wait.
func (g *committer) land(f flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := f.lane
	if w := f.watch; w != nil {
		w.landed = true
		if w.timer != nil && w.timer.Stop() {
			g.wg.Done()
		}
		if w.late {
			l.late--
		}
	}
	l.inAir -= f.calls
	if l.batched = g.mixer != nil && f.calls > 1; l.batched {
		g.gather(l, f.calls)
	}
	l.flying--
	switch {
	case len(l.queue) > 0 && !g.full(l):
		g.begin(f.route, l)
	case l.flying == 0:
		delete(g.lanes, f.route)
	}
}

// gather waits a moment for those whose answers have just come; under mu.
func (g *committer) gather(l *lane, calls int) {
	begun := driver.Now()
	for i := 0; i < yields && len(l.queue) < calls && driver.Now().Sub(begun) < moment; i++ {
		g.mu.Unlock()
		runtime.Gosched()
		g.mu.Lock()
	}
}

// fly sends one batch of those who wait.
func (g *committer) fly(r route, l *lane) {
	g.mu.Lock()
	batch := g.take(l)
	f := g.depart(r, l, len(batch), len(batch) == 1 && batch[0].alone)
	if len(l.queue) > 0 && !g.full(l) {
		g.begin(r, l)
	}
	g.mu.Unlock()
	defer g.land(f)
	if len(batch) == 0 { // all have given up
		return
	}
	ctx, cancel := g.c.within(g.c.always, g.timeout(batch))
	defer cancel()
	g.exchange(ctx, batch)
}
