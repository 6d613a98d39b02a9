package holdfast

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Leader is who leads an election, and what he says of himself. The zero Leader is
// nobody.
type Leader struct {
	Owner string // 32 hexadecimal digits
	Label string
	Token uint64 // of the term; 0 if the store gives none, or not before something was proclaimed
	Value string // "" until something was proclaimed, a moment after the term began
	seq   uint64 // of the value
}

// None tells whether nobody leads.
func (l Leader) None() bool { return l.Owner == "" }

// MarshalJSON gives the token as a decimal string, as [Holder.MarshalJSON].
func (l Leader) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Owner string `json:"owner,omitempty"`
		Label string `json:"label,omitempty"`
		Token string `json:"token"`
		Value string `json:"value"`
	}{l.Owner, l.Label, strconv.FormatUint(l.Token, 10), l.Value})
}

// Leader asks the store who leads, in one request; the zero Leader if nobody does.
// Whoever holds the name by another lock than an election's leads it too, and says
// nothing. Who leads may have changed when the answer arrives: what depends on it
// must be checked by the token. Errors: those of [Client.Inspect].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	l, _, err := e.look(ctx, "leader")
	return l, err
}

// Observe yields who leads: at once, and then whenever there is another leader,
// another value, or nobody any more, until ctx ends or the loop is left. A loop that
// takes its time delays nobody and is then told the latest; what came and went
// meanwhile is passed over, as it is where a store that must be asked is asked too
// late: every half second, on local stores ten times a second. The latest is never
// missed, and nothing older follows it.
//
// When the store does not answer, the error is yielded once, with the zero Leader:
// who leads is not known then. The loop goes on, and is told the leader when the store
// answers again, also if it is the same. ErrClosed and errors that no further try can
// mend end it. That ctx ended is no error.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		o := &observer{e: e, bell: make(chan struct{}, 1)}
		watching, stop := context.WithCancel(ctx)
		defer stop()
		ended := o.watch(watching)
		defer func() {
			stop()
			<-ended
		}()
		for {
			l, err := o.next(ctx)
			if ctx.Err() != nil || !yield(l, err) || err != nil && !retriable(err) {
				return
			}
		}
	}
}

// look asks once, and also tells how long the term runs if nothing happens.
func (e *Election) look(ctx context.Context, op string) (Leader, time.Duration, error) {
	c := e.c
	if err := validName(e.name); err != nil {
		return Leader{}, 0, c.errorf(op, e.name, ErrInvalid, err)
	}
	if c.valuer == nil {
		return Leader{}, 0, c.errorf(op, e.name, ErrUnsupported, textError("this store keeps no values"))
	}
	done, err := c.enter(op, e.name)
	if err != nil {
		return Leader{}, 0, err
	}
	defer done()
	rctx, cancel := c.bounded(ctx, MaxTTL)
	defer cancel()
	h, err := c.valuer.Leader(rctx, c.storeName(e.name))
	switch {
	case err != nil:
		return Leader{}, 0, c.failure(ctx, op, e.name, err)
	case h == nil:
		return Leader{}, 0, nil
	}
	return Leader{
		Owner: hex.EncodeToString(h.Owner[:]), Label: h.Label, Token: c.fullToken(h.Token, 0), Value: h.Value, seq: h.Seq,
	}, h.Left, nil
}

// observer is one loop over [Election.Observe].
type observer struct {
	e        *Election
	bell     chan struct{} // rung by the store's watch
	standing atomic.Bool   // the watch tells of every change

	told    bool // something was yielded
	failed  bool // the last was an error
	last    Leader
	newest  Leader         // the last that was not nobody
	ended   bool           // newest leads no more
	stale   driver.Instant // since when the store has shown something older
	retries backoff
}

// watch lets the store ring the bell, where it can, until ctx ends. The channel is
// closed then.
func (o *observer) watch(ctx context.Context) (ended <-chan struct{}) {
	c := o.e.c
	done := make(chan struct{})
	watcher, ok := c.valuer.(driver.Watcher)
	if !ok || !c.background(func() {
		defer close(done)
		life, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		for pause := (backoff{}); life.Err() == nil; c.rest(life, pause.next()) {
			_ = watcher.Watch(life, c.storeName(o.e.name), func() {
				o.standing.Store(true)
				o.ring()
			})
			if o.standing.Swap(false) {
				pause.reset()
			}
			o.ring()
		}
	}) {
		close(done)
	}
	return done
}

func (o *observer) ring() {
	select {
	case o.bell <- struct{}{}:
	default: // not heard yet
	}
}

// next waits for something that the loop does not know yet.
func (o *observer) next(ctx context.Context) (Leader, error) {
	for {
		l, left, err := o.e.look(ctx, "observe")
		switch {
		case err != nil:
			if news := !o.failed || !retriable(err); news || ctx.Err() != nil {
				o.failed = true
				return Leader{}, err
			}
			o.rest(ctx, o.retries.next())
			continue
		case !o.older(l) && (!o.told || o.failed || l != o.last):
			o.told, o.failed, o.last = true, false, l
			o.retries.reset()
			return l, nil
		}
		o.rest(ctx, o.cadence(left))
		if ctx.Err() != nil {
			return Leader{}, ctx.Err()
		}
	}
}

// older tells whether the store shows something that came before what was yielded
// already: an entry that its successor has not overwritten yet, or a replica that
// lags. Where tokens may fall after a failover it is believed in the end.
func (o *observer) older(l Leader) bool {
	switch {
	case l.None():
		o.ended, o.stale = !o.newest.None(), 0
		return false
	case l.Token == 0: // none that can be compared
		o.stale = 0
		return false
	case l.Token > o.newest.Token || l.Token == o.newest.Token && l.seq >= o.newest.seq && !o.ended:
		o.newest, o.ended, o.stale = l, false, 0
		return false
	}
	now := driver.Now()
	if o.stale == 0 {
		o.stale = now
	}
	if o.e.c.props.Class >= ClassB || now.Sub(o.stale) < staleFor {
		return true
	}
	o.newest, o.ended, o.stale = l, false, 0
	return false
}

// cadence is when to look again if no bell rings: also when the term would end,
// since the end of a lease rings none.
func (o *observer) cadence(left time.Duration) time.Duration {
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
		due = pollMin
	}
	return due*9/10 + rand.N(due/5)
}

// rest sleeps until the bell rings, or the time, ctx or the client is over.
func (o *observer) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.bell:
	case <-timer.C:
	case <-ctx.Done():
	case <-o.e.c.life.Done():
	}
}
