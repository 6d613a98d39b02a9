package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// line is what this client does about one name: goroutines that wait for it, in
// order of arrival, the holds it has, and whether somebody asks the store on
// behalf of the first waiter. All fields are under client.mu.
type line struct {
	c           *Client
	key         lineKey
	name        driver.Name
	first, last *waiter
	left        uint64 // waiters that are gone
	holds       int
	serving     bool          // one goroutine asks the store, or a place is parked there: see serve.go
	changed     chan struct{} // tells it that waiters came or left
	place       *place        // parked in the store's queue: see queue.go
	pause       backoff       // between attempts, of who serves
	reason      error         // why the store did not grant last: ErrHeld, ErrUnavailable…
	cause       error         // the store's own words for it
	downSince   driver.Instant
	queue       driver.Queue // what was learned last
	aging       bool         // it was idle, and is forgotten if it still is when its turn comes
	freed       bool         // a hold of ours ended: the name may be free
	alone       bool         // the last attempt blocked: the next travels alone
	turn        *hold        // the hold that may be handed over: see handover.go
	turnTimer   *time.Timer  // looks at the line when the turn is over
	turnArmed   *hold        // the turn that it is set for
}

// ask is what a waiter wants. Waiters who ask for the same may share a place in
// the store's queue and hand over to each other.
type ask struct {
	mode                  Mode
	n, limit              int
	ttl, minHold, maxHold time.Duration
	noRenew, unfair       bool
	// elects: each term is a grant of its own, and its wait is nothing unusual.
	elects bool
	// window is how long the store is asked to keep the grant.
	window time.Duration
}

// idleLines is how many lines with neither hold nor waiter are kept, so that a
// name that is locked again and again costs no new one each time.
const idleLines = 64

// lineKey finds a line. Those who barge have a line of their own for a name:
// in one with the others they would keep them from the store's queue.
type lineKey struct {
	name   string
	unfair bool
}

// line finds or makes the line of a name; under mu.
func (c *Client) line(n driver.Name, unfair bool) *line {
	key := lineKey{n.Key, unfair}
	ln := c.lines[key]
	if ln == nil {
		ln = &line{c: c, key: key, name: n}
		c.lines[key] = ln
	}
	return ln
}

func (ln *line) idle() bool { return ln.first == nil && ln.holds == 0 && !ln.serving }

// tidy forgets the line when nothing is left of it, sooner or later; under mu.
func (ln *line) tidy() {
	if !ln.idle() {
		return
	}
	if ln.turnArmed != nil {
		ln.turnTimer.Stop()
	}
	ln.turn, ln.turnArmed = nil, nil
	if ln.aging {
		return
	}
	c := ln.c
	ln.aging = true
	c.aging = append(c.aging, ln)
	if len(c.aging) <= idleLines {
		return
	}
	oldest := c.aging[0]
	c.aging[0] = nil
	c.aging = c.aging[1:]
	oldest.aging = false
	if oldest.idle() {
		delete(c.lines, oldest.key)
	}
}

func (ln *line) push(w *waiter) {
	if ln.first == nil && ln.down() {
		ln.reason, ln.cause = nil, nil // of an earlier wait
	}
	ln.c.arrived++
	w.num, w.queued, w.line = ln.c.arrived, true, ln
	if w.prev = ln.last; w.prev != nil {
		w.prev.next = w
	} else {
		ln.first = w
	}
	ln.last = w
}

func (ln *line) remove(w *waiter) {
	if !w.queued {
		return
	}
	w.queued = false
	ln.left++
	ln.c.keeper.cancel(&w.alarm)
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ln.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ln.last = w.prev
	}
	w.prev, w.next = nil, nil
	ln.nudge()
}

// nudge makes whoever serves look at the waiters again.
func (ln *line) nudge() {
	if p := ln.place; p != nil {
		if !ln.wants(p.ask) {
			ln.dropPlace()
		}
		return
	}
	if ln.changed != nil {
		select {
		case ln.changed <- struct{}{}:
		default:
		}
	}
}

// storeDown notes that the store could not be asked, and tells those who wait;
// under mu.
func (ln *line) storeDown(cause error) {
	ln.noteDown(cause)
	for w := ln.first; w != nil; w = w.next {
		if w.ready != nil { // it sleeps: who does not is told nothing
			w.setAlarm()
		}
	}
}

// noteDown is storeDown, but only a wait that ends now says so; under mu.
func (ln *line) noteDown(cause error) {
	if !ln.down() {
		ln.downSince = driver.Now()
	}
	ln.reason, ln.cause = ErrUnavailable, cause
}

// down tells whether the store could not be asked when it was asked last; under
// mu.
func (ln *line) down() bool { return ln.reason == ErrUnavailable } //nolint:errorlint // one of ours, never wrapped

// wants tells whether a grant for a would still serve the first waiter.
func (ln *line) wants(a ask) bool { return ln.first != nil && ln.first.ask == a }

// resolve gives a waiter its lease or error and wakes it. Its goroutine may use
// the waiter again at once, so nobody else may look at it after that.
func (ln *line) resolve(w *waiter, l *Lease, err error) {
	ln.remove(w)
	w.done, w.lease, w.err = true, l, err
	if w.ready != nil {
		close(w.ready)
	}
}

// stir starts serving if somebody waits and nobody asks for him; under mu. It
// is called whenever a hold or an attempt ends.
func (ln *line) stir() {
	if ln.serving {
		ln.freed = true
		ln.nudge()
		return
	}
	switch {
	case ln.first == nil || ln.c.closed:
		ln.tidy()
		return
	case ln.turn != nil && ln.turnOpen(driver.Now()):
		ln.armTurn()
		return
	}
	ln.startServing(ln.serve)
}

// await sleeps until the waiter is served, ctx ends, or the wait runs out.
func (ln *line) await(w *waiter, wait time.Duration) (*Lease, error) {
	c := ln.c
	c.mu.Lock()
	if w.done {
		c.mu.Unlock()
		return w.lease, w.err
	}
	w.ready = make(chan struct{})
	if w.start == 0 {
		w.start = driver.Now()
	}
	if w.queued { // else his ctx ended during his own attempt, and he leaves
		w.setAlarm()
	}
	c.mu.Unlock()

	var end <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(w.start.Add(wait).Until())
		defer timer.Stop()
		end = timer.C
	}
	if end == nil && w.ctx.Done() == nil {
		<-w.ready
		return w.lease, w.err
	}
	select {
	case <-w.ready:
		return w.lease, w.err
	case <-w.ctx.Done():
		return ln.leave(w, w.ctx.Err())
	case <-end:
		return ln.lastAttempt(w, wait)
	}
}

// leave takes a waiter out whose wait ended. If it was granted just now and its
// ctx has ended, the grant goes to the next or back to the store: the caller
// gets an error and nothing else.
func (ln *line) leave(w *waiter, why error) (*Lease, error) {
	c := ln.c
	c.mu.Lock()
	if w.done {
		lease, err := w.lease, w.err
		c.mu.Unlock()
		if lease == nil || errors.Is(why, ErrTimeout) {
			return lease, err
		}
		ctx := context.WithoutCancel(w.ctx)
		c.background(func() { _ = lease.Release(ctx) })
		return nil, c.waitError(ln.name.Full, why, nil, nil, nil)
	}
	ln.remove(w)
	reason, cause := ln.reason, ln.cause
	ln.tidy()
	c.mu.Unlock()
	var holder *Holder
	if reason == ErrHeld && !errors.Is(why, context.Canceled) { //nolint:errorlint // one of ours, never wrapped
		holder = ln.newestHolder()
	}
	return nil, c.waitError(ln.name.Full, why, reason, cause, holder)
}

// waitError tells a wait that ran out from one that was called off, and says
// what it waited for last.
func (c *Client) waitError(name string, why, reason, cause error, holder *Holder) error {
	e := c.errorf("acquire", name, why, nil)
	switch {
	case errors.Is(why, context.DeadlineExceeded):
		e.Kind = ErrTimeout
		e.Err = errors.Join(why, reason, cause)
		e.Holder = holder
	case errors.Is(why, ErrTimeout):
		e.Err = errors.Join(reason, cause)
		e.Holder = holder
	}
	return e
}

func (ln *line) holder() *Holder { return ln.c.newHolder(ln.queue.Holder) }
