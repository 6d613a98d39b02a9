package holdfast

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// outlook is what this client sees of an election that somebody observes: one
// watch, or one poll, however many do.
type outlook struct {
	e        *Election
	bell     chan struct{} // rung by the store's watch, and by who comes
	standing atomic.Bool   // the watch tells of every change
	stop     context.CancelFunc
	ended    chan struct{} // closed when nothing is asked any more

	// Under client.mu.
	observers int
	looks     int           // begun
	wanted    int           // the number of the latest look that somebody waits for
	sight     sight         // the latest
	news      chan struct{} // closed when there is another

	// Of run alone.
	newest  Leader         // the last that was not nobody
	over    bool           // newest leads no more
	stale   driver.Instant // since when the store has shown something older
	retries backoff
}

// sight is what the look of a number has shown.
type sight struct {
	look   int // 0: there was none yet
	leader Leader
	err    error
}

// final tells that no further look can mend the error.
func (s sight) final() bool { return s.err != nil && !retriable(s.err) }

// observer joins those who observe an election, or is the first.
func (c *Client) observer(e *Election) *observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.outlooks[e.name]
	if o == nil {
		o = &outlook{e: &Election{c: c, name: e.name}, bell: make(chan struct{}, 1), ended: make(chan struct{}), news: make(chan struct{})}
		var ctx context.Context
		ctx, o.stop = context.WithCancel(c.life)
		if c.closed {
			o.sight = sight{look: 1, err: o.closed()}
			close(o.ended)
		} else {
			c.outlooks[e.name] = o
			c.work.Go(func() { o.run(ctx) })
		}
	}
	o.observers++
	return &observer{o: o}
}

// want has the store asked, and returns the number of the look that says how things
// stand now.
func (o *outlook) want() (number int) {
	o.e.c.mu.Lock()
	defer o.e.c.mu.Unlock()
	if o.sight.final() {
		return o.sight.look
	}
	o.wanted = o.looks + 1
	o.ring()
	return o.wanted
}

// leave is the end of a loop; the last one ends the outlook too.
func (v *observer) leave() {
	o, c := v.o, v.o.e.c
	c.mu.Lock()
	o.observers--
	last := o.observers == 0
	if last {
		o.forget()
	}
	c.mu.Unlock()
	if last {
		o.stop()
		<-o.ended
	}
}

// forget has the next observer begin anew; under mu.
func (o *outlook) forget() {
	if outlooks := o.e.c.outlooks; outlooks[o.e.name] == o {
		delete(outlooks, o.e.name)
	}
}

func (o *outlook) closed() error { return o.e.c.errorf("observe", o.e.name, ErrClosed, nil) }

// run looks again and again, until nobody observes or no further look can mend an
// error.
func (o *outlook) run(ctx context.Context) {
	defer close(o.ended)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		o.watch(ctx)
	}()
	defer func() {
		o.stop()
		<-watching
	}()
	for {
		number := o.begin()
		l, left, err := o.e.look(ctx, "observe")
		if ctx.Err() != nil { // nobody is there, or the client is closed
			err = o.closed()
		}
		s := sight{number, l, err}
		o.show(s)
		switch {
		case s.final():
			return
		case err == nil:
			o.retries.reset()
			o.rest(ctx, o.cadence(left))
		default:
			o.rest(ctx, o.retries.next())
		}
	}
}

func (o *outlook) begin() int {
	o.e.c.mu.Lock()
	defer o.e.c.mu.Unlock()
	o.looks++
	return o.looks
}

// show tells the observers, if it is something new to any of them.
func (o *outlook) show(s sight) {
	older := s.err == nil && o.older(s.leader)
	c := o.e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	before := o.sight
	if older {
		s.leader, s.err = before.leader, before.err
	}
	if o.sight = s; s.final() {
		o.forget()
	}
	if before.look < o.wanted || s.leader != before.leader || (s.err == nil) != (before.err == nil) || s.final() {
		close(o.news)
		o.news = make(chan struct{})
	}
}

// watch lets the store ring the bell, where it can, until ctx ends.
func (o *outlook) watch(ctx context.Context) {
	c := o.e.c
	watcher, ok := c.valuer.(driver.Watcher)
	if !ok {
		return
	}
	for pause := (backoff{}); ctx.Err() == nil; c.rest(ctx, pause.next()) {
		_ = watcher.Watch(ctx, c.storeName(o.e.name), func() {
			o.standing.Store(true)
			o.ring()
		})
		if o.standing.Swap(false) {
			pause.reset()
		}
		o.ring()
	}
}

func (o *outlook) ring() {
	select {
	case o.bell <- struct{}{}:
	default: // not heard yet
	}
}

// older tells whether the store shows something that came before what was shown
// already: an entry that its successor has not overwritten yet, or a replica that
// lags. If it lasts it is believed: tokens fall after some failovers, and where a
// store was restored from a backup.
func (o *outlook) older(l Leader) bool {
	switch {
	case l.None():
		o.over, o.stale = !o.newest.None(), 0
		return false
	case l.Token == 0: // none that can be compared
		o.stale = 0
		return false
	case l.Token > o.newest.Token || l.Token == o.newest.Token && l.seq >= o.newest.seq && !o.over:
		o.newest, o.over, o.stale = l, false, 0
		return false
	}
	if o.stale == 0 {
		o.stale = driver.Now()
	}
	if o.staleFor() < o.patience() {
		return true
	}
	o.newest, o.over, o.stale = l, false, 0
	return false
}

func (o *outlook) staleFor() time.Duration { return driver.Now().Sub(o.stale) }

// patience is for how long something older must show until it is believed.
func (o *outlook) patience() time.Duration {
	if o.e.c.props.Class >= ClassB {
		return restoredFor
	}
	return staleFor
}

// cadence is when to look again if no bell rings: also when the term would end,
// since the end of a lease rings none.
func (o *outlook) cadence(left time.Duration) time.Duration {
	due := observeEvery
	switch {
	case o.standing.Load():
		due = observeWatched
	case o.e.c.props.Local:
		due = observeLocal
	}
	if left > 0 {
		due = min(due, left+pollMin)
	}
	if o.stale != 0 {
		due = min(due, max(pollMin, o.staleFor()/4))
	}
	return due*9/10 + rand.N(due/5)
}

// rest sleeps until the bell rings, or the time or ctx is over.
func (o *outlook) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.bell:
	case <-timer.C:
	case <-ctx.Done():
	}
}
