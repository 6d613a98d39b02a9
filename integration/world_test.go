package integration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/faulty"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/memlock"
)

// patience is the longest that any wait of a random program may take: all holds
// end, so a longer one is forgotten.
const patience = 10 * time.Minute

// run plays the world, within a bubble.
func (w *world) run() {
	w.begin()
	var workers, others sync.WaitGroup
	done := make(chan struct{})
	for i := range w.users {
		for k := range w.workers {
			workers.Go(func() { w.newWorker(i, k).run() })
		}
	}
	others.Go(func() { w.breakSome(done) })
	others.Go(func() { w.cutSome(done) })
	others.Go(func() { w.closeOne(done) })
	workers.Wait()
	close(done)
	others.Wait()
	w.finish()
}

// begin makes the server and its clients.
func (w *world) begin() {
	start := time.Now()
	w.rec = history.NewRecorder("bubble", func() int64 { return int64(time.Since(start)) + 1 })
	w.server = memlock.NewServer()
	for i := range w.clients {
		w.users = append(w.users, w.newUser(i))
	}
}

func (w *world) newUser(i int) *user {
	plan := w.plan
	if !w.quiet() {
		plan.Seed += uint64(i) //nolint:gosec // not negative
	}
	store, line, err := faulty.Wrap(w.open(w.server), w.shape, plan)
	if err != nil {
		w.wrong("wrap: %v", err)
	}
	w.lines = append(w.lines, line)
	client, err := holdfast.New(store, &holdfast.Options{TTL: w.ttl, NoLocalHandOver: w.noLocal, Logger: silent, Observe: w.observe})
	if err != nil {
		w.wrong("new: %v", err)
	}
	return &user{rec: w.rec, number: i, client: client}
}

// pause lets the bubble's clock run; false if done was closed first.
func pause(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

// mayEnd marks the acquires whose leases may end by their own terms.
type mayEnd struct{}

// observe hears of losses: none may be told late, and without a fault none may
// happen.
func (w *world) observe(ctx context.Context, e holdfast.Event) {
	switch e.Kind { //nolint:exhaustive // the others are no losses
	case holdfast.EventRenewFailed:
		if w.quiet() {
			w.wrong("a renewal failed without a fault: %v", e.Err)
		}
	case holdfast.EventLost:
		if e.Left < -time.Millisecond {
			w.wrong("loss of %q %d told %v after the deadline", e.Name, e.Token, -e.Left)
		}
		if w.quiet() && w.breaks == 0 && ctx.Value(mayEnd{}) == nil {
			w.wrong("lost without a fault: %q %d: %v", e.Name, e.Token, e.Err)
		}
	}
}

// breakSome is a person who breaks holds.
func (w *world) breakSome(done <-chan struct{}) {
	r := rand.New(rand.NewPCG(w.seed, 2))
	for range w.breaks {
		if !pause(done, time.Duration(r.Int64N(int64(2*time.Second)))) {
			return
		}
		u := w.users[r.IntN(len(w.users))]
		name := w.names[r.IntN(len(w.names))]
		record, err := u.client.Inspect(context.Background(), name)
		if err != nil && !errors.Is(err, holdfast.ErrClosed) {
			w.wrong("inspect: %v", err)
		}
		if len(record.Holders) == 0 {
			continue
		}
		holder := record.Holders[r.IntN(len(record.Holders))]
		o := holdfast.BreakOptions{Token: holder.Token, Reason: "the story wants it", Force: r.IntN(2) == 0}
		if o.Force {
			w.rec.Add(history.Event{Kind: history.Break, Name: name, Token: o.Token})
		}
		err = u.client.Break(context.Background(), name, o)
		w.rec.Add(history.Event{Kind: history.Fault, Name: name, Token: o.Token, OK: err == nil, Err: "broken"})
	}
}

// cutSome is a bad network.
func (w *world) cutSome(done <-chan struct{}) {
	r := rand.New(rand.NewPCG(w.seed, 3))
	for range w.outages {
		if !pause(done, time.Duration(r.Int64N(int64(2*time.Second)))) {
			return
		}
		i := r.IntN(len(w.lines))
		w.lines[i].Down()
		w.rec.Add(history.Event{Kind: history.Fault, Client: i, Err: "line down"})
		pause(done, time.Duration(r.Int64N(int64(2*w.ttl))))
		w.lines[i].Up()
		w.rec.Add(history.Event{Kind: history.Fault, Client: i, Err: "line up"})
	}
}

// closeOne closes a client in the middle of everything.
func (w *world) closeOne(done <-chan struct{}) {
	if w.closing > 0 && pause(done, w.closing) {
		w.close(w.users[len(w.users)-1])
	}
}

// close holds Close to its bound: 5 s, and what MinHold and requests on their
// way add.
func (w *world) close(u *user) {
	start := time.Now()
	err := u.closeClient()
	if took := time.Since(start); took > 8*time.Second {
		w.wrong("close took %v: %v", took, err)
	}
	if err != nil && w.quiet() {
		w.wrong("close: %v", err)
	}
}

// finish sees that everything ends, and that nothing stays taken.
func (w *world) finish() {
	for _, l := range w.lines {
		l.Heal()
	}
	// What was abandoned may live for its window, what a late repetition made
	// for that of a place and a claim.
	settle := 2*w.ttl + 15*time.Second
	if w.plan.Repeat > 0 {
		settle += w.plan.Late + 35*time.Second
	}
	pause(nil, settle)
	store := w.server.Store().(driver.Inspector) //nolint:errcheck,forcetypeassert // the memory store can
	for _, name := range w.names {
		r, err := store.Inspect(context.Background(), driver.Name{Key: ":" + name, Full: name})
		if err == nil && len(r.Holders)+len(r.Waiters) > 0 {
			w.wrong("%q is still taken %v after all is over: %+v", name, settle, r)
		}
	}
	for _, u := range w.users {
		w.close(u)
	}
	pause(nil, time.Second)
	for _, name := range w.names {
		free, err := w.server.Store().Acquire(context.Background(), &driver.AcquireRequest{
			Name: driver.Name{Key: ":" + name, Full: name}, Owner: driver.Owner{1}, Mode: driver.Exclusive, TTL: time.Second,
		})
		if err != nil || free.Status != driver.Granted {
			w.wrong("%q is taken after every client was closed: %+v, %v", name, free, err)
		}
	}
}
