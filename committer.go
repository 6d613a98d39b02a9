package holdfast

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// committer lets the calls that many goroutines make in the same moment travel
// together (group commit): whatever queued while others were away leaves as
// one batch. Nothing waits to fill a batch: a call that finds a free flight
// goes at once. Shards do not wait for each other.
type committer[Q, A any] struct {
	c    *Client
	send func(ctx context.Context, reqs []Q) []A
	ref  func(Q) driver.Ref
	err  func(A) error
	fail func(error) A
	// timeout of one exchange with these requests.
	timeout func(reqs []Q) time.Duration

	mu    sync.Mutex
	lanes map[int]*lane[Q, A]
	first lane[Q, A]      // of shard 0, kept
	names map[string]bool // of the batch that is put together, kept
	wg    sync.WaitGroup  // batches in flight
}

// lane is what goes to one shard; it exists while something does.
type lane[Q, A any] struct {
	queue  []*call[Q, A]
	flying int
}

// flights is how many batches may be on their way to a shard at once, so that
// one blocked request does not stall all.
const flights = 4

type call[Q, A any] struct {
	req    Q
	alone  bool
	answer A
	done   chan struct{}
}

// do sends a request, with whatever else is waiting if all flights are taken.
// A request that blocked once is sent alone. If ctx ends while the request
// still waits for a flight it is not sent (Canceled); later, it may still be
// applied (Indeterminate). ctx bounds the request as well.
func (g *committer[Q, A]) do(ctx context.Context, req Q, blocked bool) (A, error) {
	shard := g.c.shard(g.ref(req))
	g.mu.Lock()
	l := g.lane(shard)
	if l.flying < flights && len(l.queue) == 0 {
		l.flying++
		g.mu.Unlock()
		defer g.land(shard, l)
		return g.send(ctx, []Q{req})[0], nil
	}
	call := &call[Q, A]{req: req, alone: blocked, done: make(chan struct{})}
	l.queue = append(l.queue, call)
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.answer, nil
	case <-ctx.Done():
		return g.giveUp(l, call, ctx.Err())
	}
}

// lane finds or makes the lane of a shard; under mu.
func (g *committer[Q, A]) lane(shard int) *lane[Q, A] {
	if shard == 0 {
		return &g.first
	}
	l := g.lanes[shard]
	if l == nil {
		l = &lane[Q, A]{}
		g.lanes[shard] = l
	}
	return l
}

// giveUp takes a call out of the queue whose caller is gone.
func (g *committer[Q, A]) giveUp(l *lane[Q, A], call *call[Q, A], why error) (none A, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kind := driver.Indeterminate
	if i := slices.Index(l.queue, call); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		kind = driver.Canceled
	}
	return none, &driver.Failure{Kind: kind, Err: why}
}

// land ends a flight, or sends it off again with those who wait.
func (g *committer[Q, A]) land(shard int, l *lane[Q, A]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(l.queue) > 0 {
		g.wg.Go(func() { g.fly(shard, l) })
		return
	}
	if l.flying--; l.flying == 0 {
		delete(g.lanes, shard)
	}
}

// fly sends one batch after the other until nobody waits.
func (g *committer[Q, A]) fly(shard int, l *lane[Q, A]) {
	for {
		g.mu.Lock()
		batch := g.take(l)
		g.mu.Unlock()
		if len(batch) == 0 {
			g.land(shard, l)
			return
		}
		ctx, cancel := g.c.within(g.c.always, g.timeout(requests(batch)))
		g.exchange(ctx, batch)
		cancel()
	}
}

// take removes the next batch from the queue: requests of different names. What
// stays is not overtaken by a later one of its name.
func (g *committer[Q, A]) take(l *lane[Q, A]) (batch []*call[Q, A]) {
	var rest []*call[Q, A]
	if g.names == nil {
		g.names = map[string]bool{}
	}
	clear(g.names)
	for _, call := range l.queue {
		key := g.ref(call.req).Name.Key
		if len(batch) == 0 || !call.alone && !batch[0].alone && len(batch) < g.c.maxBatch && !g.names[key] {
			batch = append(batch, call)
		} else {
			rest = append(rest, call)
		}
		g.names[key] = true
	}
	l.queue = rest
	return batch
}

// exchange sends a batch and hands out the answers. One that was surely
// refused as a whole is sent again in halves, to find who spoils it, within the
// same time.
func (g *committer[Q, A]) exchange(ctx context.Context, batch []*call[Q, A]) {
	var answers []A
	if err := ctx.Err(); err == nil {
		answers = g.send(ctx, requests(batch))
	} else {
		answers = make([]A, len(batch))
		for i := range answers {
			answers[i] = g.fail(&driver.Failure{Kind: driver.Unavailable, Err: err})
		}
	}
	if len(batch) > 1 && ctx.Err() == nil && g.refused(answers) {
		g.exchange(ctx, batch[:len(batch)/2])
		g.exchange(ctx, batch[len(batch)/2:])
		return
	}
	for i, call := range batch {
		call.answer = answers[i]
		close(call.done)
	}
}

func requests[Q, A any](batch []*call[Q, A]) []Q {
	reqs := make([]Q, len(batch))
	for i, call := range batch {
		reqs[i] = call.req
	}
	return reqs
}

// refused tells whether no request of the batch was applied, for a reason that
// need not be the request's own.
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
		c: c, send: b.AcquireMany, lanes: map[int]*lane[*driver.AcquireRequest, driver.AcquireAnswer]{},
		ref: func(r *driver.AcquireRequest) driver.Ref {
			return driver.Ref{Name: r.Name, Owner: r.Owner, Mode: r.Mode}
		},
		err:  func(a driver.AcquireAnswer) error { return a.Err },
		fail: func(err error) driver.AcquireAnswer { return driver.AcquireAnswer{Err: err} },
		timeout: func(reqs []*driver.AcquireRequest) time.Duration {
			ttl := MaxTTL
			for _, r := range reqs {
				ttl = min(ttl, r.TTL)
			}
			return c.requestTimeout(ttl)
		},
	}
}

func newReleaseCommitter(c *Client, b driver.Batcher) *committer[*driver.ReleaseRequest, driver.ReleaseAnswer] {
	return &committer[*driver.ReleaseRequest, driver.ReleaseAnswer]{
		c: c, send: b.ReleaseMany, lanes: map[int]*lane[*driver.ReleaseRequest, driver.ReleaseAnswer]{},
		ref:     func(r *driver.ReleaseRequest) driver.Ref { return r.Ref },
		err:     func(a driver.ReleaseAnswer) error { return a.Err },
		fail:    func(err error) driver.ReleaseAnswer { return driver.ReleaseAnswer{Err: err} },
		timeout: func([]*driver.ReleaseRequest) time.Duration { return c.releaseTimeout() },
	}
}
