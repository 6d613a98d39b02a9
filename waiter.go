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
	alarm alarm // when the wait is long

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
