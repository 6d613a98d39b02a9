package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// waiter is one goroutine that waits for the name.
type waiter struct {
	ask        ask
	name       driver.Name
	label      string
	ctx        context.Context
	num        uint64
	start      driver.Instant
	prev, next *waiter
	queued     bool
	key        reentrancyKey // enters the hold there, if set
	held       heldKey       // finds a lease in ctx

	done  bool
	lease *Lease
	err   error
	ready chan struct{} // made when the goroutine sleeps; closed when done

	line     *line
	alarm    alarm          // when there is something to tell of the wait
	long     bool           // that it has become long was told
	toldDown driver.Instant // when it was told last that the store is down
	ahead    int            // who waited before it,
	counted  uint64         // when so many had left the line, and one more: never if 0

	firstPlace place // storage of the first attempt
	handedOver bool  // by another goroutine of this process
	own        bool  // served by that one, on its own goroutine
}

// waiters are used again: an acquire then leaves less to collect.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

func newWaiter(ctx context.Context) *waiter {
	w := waiters.Get().(*waiter) //nolint:errcheck,forcetypeassert // nothing else is put there
	w.ctx = ctx
	return w
}

// recycle puts the waiter back, unless its first attempt may still be known to
// others: to a goroutine that serves the line, a signal, or the keeper.
func (w *waiter) recycle() {
	if w.own || w.firstPlace.c == nil {
		*w = waiter{}
		waiters.Put(w)
	}
}

// setAlarm sets when there is something to tell of the wait: when it has become
// long, which for a candidate is nothing to tell, and that the store is down, at
// once and again for as long as it is; under mu.
func (w *waiter) setAlarm() {
	w.alarm.waiter, w.alarm.at = w, never
	if !w.ask.elects && !w.long {
		w.alarm.at = w.start.Add(longWait)
	}
	if w.line.down() {
		w.alarm.at = min(w.alarm.at, w.tellDown())
	}
	w.line.c.keeper.set(&w.alarm)
}

// tellDown is when to tell that the store is down: 0, at once, if that was never
// told. A store that comes and goes is not told of each time.
func (w *waiter) tellDown() driver.Instant {
	if w.toldDown == 0 {
		return 0
	}
	return max(w.toldDown, w.line.downSince).Add(longWait)
}

// news is what is to be told of the wait, nil if nothing is; under mu.
func (w *waiter) news(now driver.Instant) (tell func()) {
	switch {
	case !w.ask.elects && !w.long && now >= w.start.Add(longWait):
		w.long = true
		tell = w.longWaited()
	case w.line.down() && now >= w.tellDown():
		w.toldDown = now
		tell = w.storeDown(now)
	}
	w.setAlarm()
	return tell
}

// storeDown is what is to be told of a wait for a store that cannot be asked;
// under mu.
func (w *waiter) storeDown(now driver.Instant) func() {
	ln, ctx := w.line, w.ctx
	e := ln.c.storeDown(w, ln.name.Full, ln.cause, now.Sub(ln.downSince))
	first := ln.first == w // one line in the log will do
	return func() {
		if first {
			ln.c.log.Warn("holdfast: the store is down, waiting for it", "store", ln.c.props.Store, "name", e.Name, "since", e.Took, "error", e.Err)
		}
		ln.c.observe(ctx, e)
	}
}

// storeDown is that event.
func (c *Client) storeDown(w *waiter, name string, cause error, since time.Duration) Event {
	return Event{
		Kind: EventStoreDown, Name: name, Mode: w.ask.mode, Took: since,
		Err: c.errorf("acquire", name, ErrUnavailable, cause),
	}
}

// longWaited is what is to be told of a long wait; under mu.
func (w *waiter) longWaited() func() {
	ln, ctx := w.line, w.ctx
	c := ln.c
	e := Event{Kind: EventLongWait, Name: ln.name.Full, Mode: w.ask.mode, Took: driver.Now().Sub(w.start), Ahead: ln.queue.Ahead}
	if ln.reason != nil && ln.cause != nil {
		e.Err = c.errorf("acquire", ln.name.Full, ln.reason, ln.cause)
	}
	e.Ahead += w.countAhead()
	return func() { ln.tellLongWait(ctx, e) }
}

// countAhead counts those of this process who wait before w; under mu. Where
// thousands are asked about at once, each goes on from one that was counted before.
func (w *waiter) countAhead() int {
	now := w.line.left + 1
	w.ahead = 0
	for other := w.prev; other != nil; other = other.prev {
		w.ahead++
		if other.counted == now {
			w.ahead += other.ahead
			break
		}
	}
	w.counted = now
	return w.ahead
}

func (ln *line) tellLongWait(ctx context.Context, e Event) {
	c := ln.c
	args := []any{"store", c.props.Store, "name", e.Name, "waited", e.Took, "ahead", e.Ahead}
	if e.Err != nil {
		args = append(args, "error", e.Err)
	} else if e.Holder = ln.newestHolder(); e.Holder != nil {
		args = append(args, "holder", e.Holder.String())
	}
	c.log.Warn("holdfast: long wait", args...)
	c.observe(ctx, e)
}
