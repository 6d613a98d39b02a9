package faulty

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Shape is what a wrapped store can do.
type Shape string

// The shapes. A store with a queue can take them all.
const (
	Queue  Shape = "queue"  // places, signals, batches
	Single Shape = "single" // places and signals, each request alone
	Poll   Shape = "poll"   // neither places nor a wait: clients try again and again
	Block  Shape = "block"  // the wait is an operation
)

// Shapes are all of them.
var Shapes = []Shape{Queue, Single, Poll, Block}

// full is what a store must do to be wrapped.
type full interface {
	driver.Queuer
	driver.Batcher
	driver.Inspector
	driver.Lister
	driver.Breaker
}

// Wrap puts a line in front of a store. The wrapped store owns it.
func Wrap(store driver.Store, shape Shape, plan Plan) (driver.Store, *Line, error) {
	inner, ok := store.(full)
	if !ok {
		return nil, nil, errors.New("only stores with a queue and all abilities can be wrapped")
	}
	l := newLine(plan)
	b := &base{Store: inner, inner: inner, line: l, local: plan == Plan{}}
	b.wait = map[Shape]driver.WaitBy{Queue: driver.ByPlaces, Single: driver.ByPlaces, Poll: driver.ByPolling, Block: driver.ByParking}[shape]
	switch shape {
	case Queue:
		return &queueStore{&singleStore{b}}, l, nil
	case Single:
		return &singleStore{b}, l, nil
	case Block:
		return &blockStore{b}, l, nil
	case Poll:
	}
	return b, l, nil
}

// base is what all shapes share.
type base struct {
	driver.Store

	inner full
	line  *Line
	local bool
	wait  driver.WaitBy
}

func (b *base) Properties() driver.Properties {
	p := b.inner.Properties()
	p.Local = p.Local && b.local // what travels can be late
	p.Wait = b.wait
	p.Fair = p.Fair && b.wait == driver.ByPlaces
	return p
}

func (b *base) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	a := b.acquireMany(ctx, []*driver.AcquireRequest{req})[0]
	return a.AcquireResult, a.Err
}

func (b *base) acquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	kept := copies(reqs)
	answers, err := call(ctx, b.line, func() []driver.AcquireAnswer { return b.inner.AcquireMany(context.WithoutCancel(ctx), kept) })
	if err != nil {
		answers = make([]driver.AcquireAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

func (b *base) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	kept := append([]driver.RenewRequest(nil), reqs...)
	results, err := call(ctx, b.line, func() []driver.RenewResult { return b.inner.Renew(context.WithoutCancel(ctx), kept) })
	if err != nil {
		results = make([]driver.RenewResult, len(reqs))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}

func (b *base) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	a := b.releaseMany(ctx, []*driver.ReleaseRequest{req})[0]
	return a.Released, a.Err
}

func (b *base) releaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	kept := copies(reqs)
	answers, err := call(ctx, b.line, func() []driver.ReleaseAnswer { return b.inner.ReleaseMany(context.WithoutCancel(ctx), kept) })
	if err != nil {
		answers = make([]driver.ReleaseAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// copies are what a late request is made of: the caller's own may have changed
// by then.
func copies[T any](reqs []*T) []*T {
	out := make([]*T, len(reqs))
	for i, req := range reqs {
		c := *req
		out[i] = &c
	}
	return out
}

// Inspect, List and Break are asked for by people, who see to it themselves that
// they get an answer.
func (b *base) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	return b.inner.Inspect(ctx, n)
}

func (b *base) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return b.inner.List(ctx, prefix)
}

func (b *base) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	return b.inner.Break(ctx, req)
}

func (b *base) Close() error {
	b.line.close()
	return b.inner.Close()
}

// Listen of a store whose holds are told of losses and breaks.
func (b *base) Listen(deliver func(driver.Signal)) {
	b.line.mu.Lock()
	b.line.signal = deliver
	b.line.mu.Unlock()
	b.inner.Listen(b.line.carrySignal)
}

type singleStore struct{ *base }

func (s *singleStore) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	kept := append([]driver.Ref(nil), places...)
	results, err := call(ctx, s.line, func() []driver.BeatResult { return s.inner.Beat(context.WithoutCancel(ctx), kept) })
	if err != nil {
		results = make([]driver.BeatResult, len(places))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}

type queueStore struct{ *singleStore }

func (q *queueStore) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	return q.acquireMany(ctx, reqs)
}

func (q *queueStore) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	return q.releaseMany(ctx, reqs)
}

func (q *queueStore) MaxBatch() int { return q.inner.MaxBatch() }

type blockStore struct{ *base }

// blockPause is how often the blocked wait looks: it stands for a server that
// grants within so long.
const blockPause = 5 * time.Millisecond

// Block waits by trying, as a server would on the client's behalf.
func (s *blockStore) Block(ctx context.Context, req *driver.AcquireRequest) (driver.Grant, error) {
	for {
		sent := driver.Now()
		res, err := s.Acquire(ctx, req)
		if err != nil {
			return driver.Grant{}, err
		}
		if res.Status == driver.Granted && ctx.Err() == nil {
			res.Grant.Sent = sent
			return res.Grant, nil
		}
		if res.Status == driver.Granted { // it came too late
			s.inner.ReleaseMany(context.WithoutCancel(ctx), []*driver.ReleaseRequest{{
				Ref: driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token},
			}})
		}
		if err := s.line.sleep(ctx, blockPause); err != nil {
			return driver.Grant{}, err
		}
	}
}
