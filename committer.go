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
type committer struct {
	c       *Client
	batcher driver.Batcher
	mixer   driver.Mixer // nil if attempts and releases travel apart

	mu    sync.Mutex
	lanes map[route]*lane
	first [2]lane         // of shard 0, kept
	names map[string]bool // of the batch that is put together, kept
	calls sync.Pool       // used again, save those whose callers gave up: they may be away
	wg    sync.WaitGroup  // batches in flight, and the timers that watch them
}

// route is what travels together: what goes to one shard and, where they do not
// mix, either attempts or releases.
type route struct {
	shard int
	kind  int
}

const (
	attempts = iota
	releases
)

func (g *committer) route(ref driver.Ref, kind int) route {
	if g.mixer != nil {
		kind = 0
	}
	return route{g.c.shard(ref), kind}
}

// lane is what goes by one route; it exists while something does.
type lane struct {
	queue  []*call
	flying int // batches that are away
	late   int // of these, those that take long
	inAir  int // calls in them
	// batched: the latest to land was a mixer's, of many calls.
	batched bool
}

// call is an attempt or a release.
type call struct {
	acquire  *driver.AcquireRequest
	release  *driver.ReleaseRequest
	alone    bool // it blocked once: nothing else is to wait for it
	acquired driver.AcquireAnswer
	released driver.ReleaseAnswer
	done     chan struct{} // filled with the answer
}

func (k *call) key() string {
	if k.acquire != nil {
		return k.acquire.Name.Key
	}
	return k.release.Name.Key
}

func (k *call) fail(err error) { k.acquired.Err, k.released.Err = err, err }

func newCommitter(c *Client, b driver.Batcher) *committer {
	g := &committer{c: c, batcher: b, lanes: map[route]*lane{}, names: map[string]bool{}}
	if m, ok := b.(driver.Mixer); ok {
		g.mixer = m
	}
	return g
}

func (g *committer) call() *call {
	if k, ok := g.calls.Get().(*call); ok {
		return k
	}
	return &call{done: make(chan struct{}, 1)}
}

func (g *committer) reuse(k *call) {
	*k = call{done: k.done}
	g.calls.Put(k)
}

// acquire makes an attempt, with whatever else is waiting if all flights are taken. One
// that blocked once is sent alone. If ctx ends while it still waits for a flight it is
// not sent (Canceled); later, it may still be applied (Indeterminate). ctx bounds the
// request as well.
func (g *committer) acquire(ctx context.Context, req *driver.AcquireRequest, blocked bool) (driver.AcquireResult, error) {
	r := g.route(driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}, attempts)
	if f, ok := g.board(r, blocked); ok {
		defer g.land(f)
		a := g.batcher.AcquireMany(ctx, []*driver.AcquireRequest{req})[0]
		return a.AcquireResult, a.Err
	}
	k := g.call()
	k.acquire, k.alone = req, blocked
	if err := g.join(ctx, r, k); err != nil {
		return driver.AcquireResult{}, err
	}
	defer g.reuse(k)
	return k.acquired.AcquireResult, k.acquired.Err
}

// release ends a grant, as acquire makes an attempt.
func (g *committer) release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	r := g.route(req.Ref, releases)
	if f, ok := g.board(r, false); ok {
		defer g.land(f)
		a := g.batcher.ReleaseMany(ctx, []*driver.ReleaseRequest{req})[0]
		return a.Released, a.Err
	}
	k := g.call()
	k.release = req
	if err := g.join(ctx, r, k); err != nil {
		return false, err
	}
	defer g.reuse(k)
	return k.released.Released, k.released.Err
}

// join queues a call, and waits for the answer.
func (g *committer) join(ctx context.Context, r route, k *call) error {
	g.mu.Lock()
	l := g.lane(r)
	full := g.full(l)
	l.queue = append(l.queue, k)
	if !full {
		g.begin(r, l)
	}
	g.mu.Unlock()
	select {
	case <-k.done:
		return nil
	case <-ctx.Done():
		return g.giveUp(l, k, ctx.Err())
	}
}

// lane finds or makes the lane of a route; under mu.
func (g *committer) lane(r route) *lane {
	if r.shard == 0 {
		return &g.first[r.kind]
	}
	l := g.lanes[r]
	if l == nil {
		l = &lane{}
		g.lanes[r] = l
	}
	return l
}

// giveUp takes a call out of the queue whose caller is gone.
func (g *committer) giveUp(l *lane, k *call, why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	kind := driver.Indeterminate
	if i := slices.Index(l.queue, k); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		kind = driver.Canceled
	}
	return &driver.Failure{Kind: kind, Err: why}
}

// take removes the next batch from the queue: requests of different names. What
// stays is not overtaken by a later one of its name.
func (g *committer) take(l *lane) (batch []*call) {
	var rest []*call
	batch = make([]*call, 0, min(len(l.queue), g.c.maxBatch))
	clear(g.names)
	for _, call := range l.queue {
		key := call.key()
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
func (g *committer) exchange(ctx context.Context, batch []*call) {
	if err := ctx.Err(); err == nil {
		g.send(ctx, batch)
	} else {
		for _, call := range batch {
			call.fail(&driver.Failure{Kind: driver.Unavailable, Err: err})
		}
	}
	if len(batch) > 1 && ctx.Err() == nil && g.refused(batch) {
		g.exchange(ctx, batch[:len(batch)/2])
		g.exchange(ctx, batch[len(batch)/2:])
		return
	}
	for _, call := range batch {
		call.done <- struct{}{}
	}
}

// send asks the store, and notes the answers in the calls.
func (g *committer) send(ctx context.Context, batch []*call) {
	var acquires []*driver.AcquireRequest
	var releases []*driver.ReleaseRequest
	if g.mixer != nil || batch[0].acquire != nil {
		acquires = make([]*driver.AcquireRequest, 0, len(batch))
	}
	if g.mixer != nil || batch[0].release != nil {
		releases = make([]*driver.ReleaseRequest, 0, len(batch))
	}
	for _, call := range batch {
		if call.acquire != nil {
			acquires = append(acquires, call.acquire)
		} else {
			releases = append(releases, call.release)
		}
	}
	var acquired []driver.AcquireAnswer
	var released []driver.ReleaseAnswer
	switch {
	case len(releases) == 0:
		acquired = g.batcher.AcquireMany(ctx, acquires)
	case len(acquires) == 0:
		released = g.batcher.ReleaseMany(ctx, releases)
	default:
		acquired, released = g.mixer.Mix(ctx, acquires, releases)
	}
	for _, call := range batch {
		if call.acquire != nil {
			call.acquired, acquired = acquired[0], acquired[1:]
		} else {
			call.released, released = released[0], released[1:]
		}
	}
}

// timeout of one exchange with these calls: the longest that one of them has. Whose
// own is shorter gives up by itself, and takes no time from the others.
func (g *committer) timeout(batch []*call) (timeout time.Duration) {
	for _, call := range batch {
		if call.acquire != nil {
			timeout = max(timeout, g.c.requestTimeout(call.acquire.TTL))
		} else {
			timeout = max(timeout, g.c.releaseTimeout())
		}
	}
	return timeout
}

// refused tells whether no request of the batch was applied, for a reason that
// need not be the request's own.
func (g *committer) refused(batch []*call) bool {
	for _, call := range batch {
		err := call.acquired.Err
		if call.release != nil {
			err = call.released.Err
		}
		if err == nil {
			return false
		}
		if k := g.c.store.Classify(err); k != driver.Unavailable && k != driver.Invalid {
			return false
		}
	}
	return true
}
