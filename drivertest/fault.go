package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// link is a store seen through a line that a case can disturb and listen to.
// It hides what no case needs behind a bad line: batches, listing, breaking.
type link struct {
	driver.Store
	t *T

	mu    sync.Mutex
	judge func(op, driver.Name) fate
	calls map[op]int
	late  chan struct{}                // closed: what was late arrives
	say   func(driver.Signal)          // to the client, as the store would
	tap   func(*driver.AcquireRequest) // sees each that passes
}

// op is a method of the contract.
type op uint8

const (
	opAcquire op = iota + 1
	opBlock
	opRenew
	opRelease
	opBeat
)

// fate is what becomes of a request.
type fate uint8

const (
	passes    fate = iota
	down           // is refused before it is sent
	replyLost      // is handled, and the answer is lost
	hangs          // is never sent; the call waits until its ctx ends
	late           // like hangs, but it is sent after all when the line heals
	slow           // is handled at once, and answered two short TTLs later
)

var (
	errDown = errors.New("the line is down")
	errCut  = errors.New("the line was cut")
)

// linked is a client behind a link.
func (t *T) linked() (*holdfast.Client, *link) {
	l := &link{Store: t.Open(), t: t, calls: map[op]int{}, late: make(chan struct{})}
	t.Cleanup(l.heal)
	var store driver.Store = l
	switch l.Store.Properties().Wait {
	case driver.ByPlaces:
		store = &queueLink{l, queuer(t, l.Store)}
	case driver.ByParking:
		store = &blockLink{l, blocker(t, l.Store)}
	case driver.ByPolling:
	}
	c := t.clientOf(store, nil)
	t.Cleanup(l.heal) // before Close, which must reach the store
	return c, l
}

func queuer(t *T, store driver.Store) driver.Queuer {
	q, ok := store.(driver.Queuer)
	if !ok {
		t.Fatalf("a store with places is no Queuer")
	}
	return q
}

func blocker(t *T, store driver.Store) driver.Blocker {
	b, ok := store.(driver.Blocker)
	if !ok {
		t.Fatalf("a store that parks is no Blocker")
	}
	return b
}

// set decides what becomes of each request from now on.
func (l *link) set(judge func(op, driver.Name) fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge = judge
}

// all gives every request of some kinds, or of all, one fate.
func (l *link) all(f fate, ops ...op) {
	l.set(func(o op, _ driver.Name) fate {
		if len(ops) == 0 || slices.Contains(ops, o) {
			return f
		}
		return passes
	})
}

// heal mends the line; what was late arrives.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge = nil
	close(l.late)
	l.late = make(chan struct{})
}

// count is how many requests of some kinds were made.
func (l *link) count(ops ...op) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range ops {
		n += l.calls[o]
	}
	return n
}

// waits waits until the client behind the link has come to wait in the store.
func (l *link) waits() {
	l.t.eventually("a waiter in the store", func() bool { return l.count(opAcquire, opBlock) > 0 })
	l.t.pause(l.t.TTL() / 20) // from the call's begin to its place in the store
}

// begin counts a request and decides. sent says whether to pass it on; err is
// the answer if not.
func (l *link) begin(ctx context.Context, o op, n driver.Name, later func()) (f fate, err error) {
	l.mu.Lock()
	l.calls[o]++
	judge, arrives := l.judge, l.late
	l.mu.Unlock()
	if judge != nil {
		f = judge(o, n)
	}
	switch f {
	case down:
		return f, &driver.Failure{Kind: driver.Unavailable, Err: errDown}
	case hangs, late:
		if f == late && later != nil {
			l.t.Go(func() {
				select {
				case <-arrives:
					later()
				case <-l.t.ctx.Done():
				}
			})
		}
		<-ctx.Done()
		return f, l.cut(ctx)
	case passes, replyLost, slow:
	}
	return f, nil
}

// dawdle keeps an answer back; false if the caller gave up on it.
func (l *link) dawdle(ctx context.Context) bool {
	select {
	case <-time.After(2 * l.t.TTL()):
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *link) cut(ctx context.Context) error {
	return &driver.Failure{Kind: driver.Indeterminate, Err: errors.Join(errCut, ctx.Err())}
}

func (l *link) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	kept := *req
	f, err := l.begin(ctx, opAcquire, req.Name, func() { _, _ = l.Store.Acquire(l.t.ctx, &kept) })
	if err != nil {
		return driver.AcquireResult{}, err
	}
	res, err := l.Store.Acquire(ctx, req)
	l.mu.Lock()
	tap := l.tap
	l.mu.Unlock()
	if tap != nil {
		tap(req)
	}
	if f == replyLost || f == slow && !l.dawdle(ctx) {
		return driver.AcquireResult{}, l.cut(ctx)
	}
	return res, err
}

func (l *link) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	res := make([]driver.RenewResult, len(reqs))
	fill := func(err error) []driver.RenewResult {
		for i := range res {
			res[i] = driver.RenewResult{Err: err}
		}
		return res
	}
	var f fate
	for i := range reqs {
		var err error
		if f, err = l.begin(ctx, opRenew, reqs[i].Name, nil); err != nil {
			return fill(err) // one bad request spoils its batch
		}
	}
	answers := l.Store.Renew(ctx, reqs)
	if f == replyLost {
		return fill(l.cut(ctx))
	}
	return answers
}

func (l *link) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	f, err := l.begin(ctx, opRelease, req.Name, nil)
	if err != nil {
		return false, err
	}
	ok, err := l.Store.Release(ctx, req)
	if f == replyLost {
		return false, l.cut(ctx)
	}
	return ok, err
}

func (l *link) Classify(err error) driver.Kind {
	if f, ok := errors.AsType[*driver.Failure](err); ok && (errors.Is(f.Err, errDown) || errors.Is(f.Err, errCut)) {
		return f.Kind
	}
	return l.Store.Classify(err)
}

func (l *link) Properties() driver.Properties {
	p := l.Store.Properties()
	p.Break, p.List, p.Inspect, p.Value = false, false, false, false
	p.Local = false // a line is what a local store does not have
	return p
}

// Shard is asked whether the store has shards or not.
func (l *link) Shard(r driver.Ref) int {
	if s, ok := l.Store.(driver.Sharder); ok {
		return s.Shard(r)
	}
	return 0
}

// Listen is there whether the store speaks or not: the case may, in its name.
func (l *link) Listen(deliver func(driver.Signal)) {
	l.mu.Lock()
	l.say = deliver
	l.mu.Unlock()
	if s, ok := l.Store.(driver.Signaler); ok {
		s.Listen(deliver)
	}
}

// queueLink is a link to a store with places.
type queueLink struct {
	*link
	inner driver.Queuer
}

func (l *queueLink) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	for _, place := range places {
		if _, err := l.begin(ctx, opBeat, place.Name, nil); err != nil {
			res := make([]driver.BeatResult, len(places))
			for i := range res {
				res[i].Err = err
			}
			return res
		}
	}
	return l.inner.Beat(ctx, places)
}

// blockLink is a link to a store that waits.
type blockLink struct {
	*link
	inner driver.Blocker
}

func (l *blockLink) Block(ctx context.Context, req *driver.AcquireRequest) (driver.Grant, error) {
	if _, err := l.begin(ctx, opBlock, req.Name, nil); err != nil {
		return driver.Grant{}, err
	}
	return l.inner.Block(ctx, req)
}
