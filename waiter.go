package holdfast

import (
	"context"
	"sync"

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

	line  *line
	alarm alarm // when there is something to tell of the wait
	down  bool  // that the store is down was told

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
// long, which for a candidate is nothing to tell, or at once that the store is
// down; under mu.
func (w *waiter) setAlarm() {
	w.alarm.waiter, w.alarm.at = w, w.start.Add(longWait)
	if w.ask.elects {
		w.alarm.at = never
	}
	if w.line.reason == ErrUnavailable && !w.down { //nolint:errorlint // one of ours, never wrapped
		w.alarm.at = driver.Now()
	}
	w.line.c.keeper.set(&w.alarm)
}

// news is what is to be told of the wait, nil if nothing is; under mu.
func (w *waiter) news(now driver.Instant) func() {
	if now >= w.start.Add(longWait) && !w.ask.elects {
		return w.longWaited()
	}
	ln, ctx := w.line, w.ctx
	w.down = ln.reason == ErrUnavailable //nolint:errorlint // one of ours, never wrapped
	w.setAlarm()
	if !w.down { // it was, for a moment
		return nil
	}
	e := ln.c.storeDown(w, ln.name.Full, ln.cause)
	first := ln.first == w // one line in the log will do
	return func() {
		if first {
			ln.c.log.Warn("holdfast: the store is down, waiting for it", "store", ln.c.props.Store, "name", e.Name, "error", e.Err)
		}
		ln.c.observe(ctx, e)
	}
}

// storeDown is the event of a wait for a store that cannot be asked.
func (c *Client) storeDown(w *waiter, name string, cause error) Event {
	return Event{
		Kind: EventStoreDown, Name: name, Mode: w.ask.mode, Took: driver.Now().Sub(w.start),
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
	for other := w.prev; other != nil; other = other.prev {
		e.Ahead++
	}
	return func() { ln.tellLongWait(ctx, e) }
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
