package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// EventKind is what happened.
type EventKind uint8

// The events.
const (
	EventAcquired    EventKind = iota + 1 // Took: how long the acquire took
	EventRefused                          // an acquire failed: Err, Took
	EventLongWait                         // an acquire waits for 10 s: Holder, Ahead, Took
	EventHandedOver                       // acquired from a goroutine of this process
	EventRenewed                          // Left: what was left of the deadline before
	EventRenewFailed                      // a renewal got no answer, and is retried: Err, Left
	EventLost                             // Err says why; matches ErrBroken if a person did it
	EventReleased                         // Took: how long it was held; Err: the store did not answer yet
	EventAbandoned                        // an attempt of unknown outcome was undone, or not (Err)
	EventStoreDown                        // an acquire waits for a store that cannot be asked: Err, Took: since when; see below
	EventWorkEnded                        // the func of Election.Run returned: Err, Took: the term so far
	EventOverran                          // it goes on although its term has ended: Took: since it was called off
)

var eventNames = [...]string{
	"none", "acquired", "refused", "long_wait", "handed_over", "renewed", "renew_failed", "lost", "released", "abandoned", "store_down",
	"work_ended", "overran",
}

// String gives the name of the event, fit for a metric's label.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

// Every lease that was told as acquired or handed over is told as lost or
// released once, in this order. EventAcquired, EventHandedOver and EventRefused
// are told on the caller's goroutine, before the acquire returns.
// EventAbandoned is told by another one, when the store has answered: attempts
// are undone at once, so it may come before or after the event of the acquire
// that made the attempt, which may also have gone on and succeeded. EventStoreDown
// is told at once when a wait meets it for the first time, and again every 10 s for
// as long as the store stays away.

// Event tells a hook what happened, for logs, metrics and traces. Fields that
// do not concern the kind are zero.
type Event struct {
	Kind   EventKind
	Store  string // e.g. "redis"
	Name   string
	Mode   Mode
	Token  uint64
	Took   time.Duration // of the wait; with lost and released: of the hold; with store_down: of the outage
	Left   time.Duration // until the deadline, before what happened
	Holder *Holder       // who holds the name, if the store tells
	Ahead  int           // waiters before this one, the holder not counted
	Err    error
}

// observe tells the hook. It is called without mu.
func (c *Client) observe(ctx context.Context, e Event) {
	if c.opts.Observe != nil {
		e.Store = c.props.Store
		c.opts.Observe(ctx, e)
	}
}

// tellAcquired tells of a lease on the goroutine that gets it.
func (c *Client) tellAcquired(w *waiter, l *Lease) {
	if c.opts.Observe == nil {
		return
	}
	kind := EventAcquired
	if w.handedOver {
		kind = EventHandedOver
	}
	c.observe(w.ctx, Event{Kind: kind, Name: l.Name(), Mode: w.ask.mode, Token: l.token, Took: driver.Now().Sub(w.start)})
	c.mu.Lock()
	l.told = true
	cause := l.cause
	c.mu.Unlock()
	if cause != nil { // while it was on its way here
		c.tellEnd(l, cause, 0, nil)
	}
}

// tellEnd tells of the end of a lease that was told as acquired.
func (c *Client) tellEnd(l *Lease, cause error, left time.Duration, err error) {
	if c.opts.Observe == nil {
		return
	}
	e := Event{Kind: EventReleased, Name: l.Name(), Mode: l.Mode(), Token: l.token, Took: driver.Now().Sub(l.since), Err: err}
	if !errors.Is(cause, ErrReleased) {
		e.Kind, e.Left, e.Err = EventLost, left, cause
	}
	c.observe(l.Context(), e)
}

// farewell is what remains to be done, without mu, for leases of a hold that
// have ended.
type farewell struct {
	c      *Client
	leases []*Lease
	told   []bool
	cause  error
	left   time.Duration // of the deadline
}

// bid finishes the leases; under mu.
func (c *Client) bid(leases []*Lease, cause error, left time.Duration) *farewell {
	f := &farewell{c: c, cause: cause, left: left}
	for _, l := range leases {
		if l.cause == nil {
			l.finish(cause)
			f.leases, f.told = append(f.leases, l), append(f.told, l.told)
		}
	}
	return f
}

// end ends the contexts: those who work under the leases must know first.
func (f *farewell) end() {
	if f == nil {
		return
	}
	for _, l := range f.leases {
		l.endContext()
	}
}

// tell writes the log line and calls the hook, which may take its time.
func (f *farewell) tell() {
	if f == nil || len(f.leases) == 0 {
		return
	}
	if l := f.leases[0]; !errors.Is(f.cause, ErrReleased) {
		f.c.log.Warn("holdfast: lease ended", "store", f.c.props.Store, "name", l.Name(), "token", l.token, "error", f.cause)
	}
	for i, l := range f.leases {
		if f.told[i] {
			f.c.tellEnd(l, f.cause, f.left, nil)
		}
	}
}
