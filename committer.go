package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// committer lets the calls that many goroutines make in the same moment travel
// together (group commit): whatever queued while others were away leaves as
// one batch. Nothing waits to fill a batch: a call that finds a free flight
// goes at once.
type committer[Q, A any] struct {
	c    *Client
	send func(ctx context.Context, reqs []Q) []A
	name func(Q) driver.Name
	ttl  func(Q) time.Duration
	err  func(A) error

	mu     sync.Mutex
	queue  []*call[Q, A]
	flying int
}

// flights is how many batches may be on their way at once, so that one blocked
// request does not stall all.
const flights = 4

type call[Q, A any] struct {
	req    Q
	alone  bool
	answer A
	done   chan struct{}
}

// do sends a request, with whatever else is waiting if all flights are taken,
// and returns its answer, or ctx's error if that ends first; the request may
// then still be applied. A request that blocked once is sent alone.
func (g *committer[Q, A]) do(ctx context.Context, req Q, alone bool) (A, error) {
	g.mu.Lock()
	if g.flying < flights && len(g.queue) == 0 {
		g.flying++
		g.mu.Unlock()
		defer g.land()
		return g.send(ctx, []Q{req})[0], nil
	}
	call := &call[Q, A]{req: req, alone: alone, done: make(chan struct{})}
	g.queue = append(g.queue, call)
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.answer, nil
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// land ends a flight, or sends it off again with those who wait. It is called
// by goroutines that Close waits for.
func (g *committer[Q, A]) land() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) > 0 {
		g.c.work.Go(g.fly)
	} else {
		g.flying--
	}
}

// fly sends batches until nobody waits.
func (g *committer[Q, A]) fly() {
	for {
		g.mu.Lock()
		batch := g.take()
		if len(batch) == 0 {
			g.flying--
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		g.exchange(batch)
	}
}

// take removes the next batch from the queue: requests of one shard and
// different names.
func (g *committer[Q, A]) take() []*call[Q, A] {
	var batch, rest []*call[Q, A]
	names := map[string]bool{}
	for _, call := range g.queue {
		n := g.name(call.req)
		fits := len(batch) == 0 || !call.alone && !batch[0].alone && len(batch) < g.c.maxBatch &&
			!names[n.Key] && g.c.shard(n) == g.c.shard(g.name(batch[0].req))
		if !fits {
			rest = append(rest, call)
			names[n.Key] = true // what waits is not overtaken by a later one of its name
			continue
		}
		batch = append(batch, call)
		names[n.Key] = true
	}
	g.queue = rest
	return batch
}

// exchange sends a batch and hands out the answers. One that was surely
// refused as a whole is sent again in halves, to find who spoils it.
func (g *committer[Q, A]) exchange(batch []*call[Q, A]) {
	answers := g.ask(batch)
	if len(batch) > 1 && g.refused(answers) {
		g.exchange(batch[:len(batch)/2])
		g.exchange(batch[len(batch)/2:])
		return
	}
	for i, call := range batch {
		call.answer = answers[i]
		close(call.done)
	}
}

func (g *committer[Q, A]) ask(batch []*call[Q, A]) []A {
	reqs, ttl := make([]Q, len(batch)), MaxTTL
	for i, call := range batch {
		reqs[i], ttl = call.req, min(ttl, g.ttl(call.req))
	}
	ctx, cancel := g.c.bounded(context.WithoutCancel(g.c.life), ttl)
	defer cancel()
	return g.send(ctx, reqs)
}

// refused tells whether no request of the batch was applied for a reason that
// is not the request's own.
func (g *committer[Q, A]) refused(answers []A) bool {
	for _, a := range answers {
		err := g.err(a)
		if err == nil {
			return false
		}
		if k := g.c.store.Classify(err); k != driver.Unavailable && k != driver.Invalid {
			return false
		}
	}
	return true
}

func newAcquireCommitter(c *Client, b driver.Batcher) *committer[*driver.AcquireRequest, driver.AcquireAnswer] {
	return &committer[*driver.AcquireRequest, driver.AcquireAnswer]{
		c: c, send: b.AcquireMany,
		name: func(r *driver.AcquireRequest) driver.Name { return r.Name },
		ttl:  func(r *driver.AcquireRequest) time.Duration { return r.TTL },
		err:  func(a driver.AcquireAnswer) error { return a.Err },
	}
}

func newReleaseCommitter(c *Client, b driver.Batcher) *committer[*driver.ReleaseRequest, driver.ReleaseAnswer] {
	return &committer[*driver.ReleaseRequest, driver.ReleaseAnswer]{
		c: c, send: b.ReleaseMany,
		name: func(r *driver.ReleaseRequest) driver.Name { return r.Name },
		ttl:  func(*driver.ReleaseRequest) time.Duration { return releaseBudget },
		err:  func(a driver.ReleaseAnswer) error { return a.Err },
	}
}
