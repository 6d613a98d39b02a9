package holdfasttest

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// faults are what all clients of a fake suffer from.
type faults struct {
	delay atomic.Int64
	down  atomic.Bool

	mu     sync.Mutex
	losses map[driver.Owner]chan struct{} // closed when the holder was told
}

// memory is all that the memory store can do.
type memory interface {
	driver.Queuer
	driver.Batcher
	driver.Inspector
	driver.Lister
	driver.Breaker
	driver.Watcher
}

// store is the memory store behind a bad network.
type store struct {
	memory
	faults *faults
}

// expectLoss returns what is closed when the holder's client knows of the loss.
func (f *faults) expectLoss(o driver.Owner) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.losses == nil {
		f.losses = map[driver.Owner]chan struct{}{}
	}
	told := make(chan struct{})
	f.losses[o] = told
	return told
}

// Listen passes signals on, and notes when a loss was told.
func (s *store) Listen(deliver func(driver.Signal)) {
	s.memory.Listen(func(sig driver.Signal) {
		deliver(sig)
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		if told := s.faults.losses[sig.Owner]; told != nil && sig.Kind == driver.LostSignal {
			close(told)
			delete(s.faults.losses, sig.Owner)
		}
	})
}

var errDown = &driver.Failure{Kind: driver.Unavailable, Err: errors.New("the store is down (holdfasttest)")}

// Properties deny that the store is local: its requests may hang.
func (s *store) Properties() driver.Properties {
	p := s.memory.Properties()
	p.Local = false
	return p
}

// through sends one request: apply runs if it reaches the store.
func (s *store) through(ctx context.Context, apply func()) error {
	half := time.Duration(s.faults.delay.Load()) / 2
	if err := wait(ctx, half); err != nil {
		return &driver.Failure{Kind: driver.Unavailable, Err: err}
	}
	if s.faults.down.Load() {
		return errDown
	}
	apply()
	if err := wait(ctx, half); err != nil {
		return &driver.Failure{Kind: driver.Indeterminate, Err: err}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bare is a request that has reached the store: its ctx no longer counts.
func bare(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func (s *store) Acquire(ctx context.Context, req *driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if lost := s.through(ctx, func() { res, err = s.memory.Acquire(bare(ctx), req) }); lost != nil {
		return driver.AcquireResult{}, lost
	}
	return res, err
}

func (s *store) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) (answers []driver.AcquireAnswer) {
	if lost := s.through(ctx, func() { answers = s.memory.AcquireMany(bare(ctx), reqs) }); lost != nil {
		answers = make([]driver.AcquireAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = lost
		}
	}
	return answers
}

func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest) (results []driver.RenewResult) {
	if lost := s.through(ctx, func() { results = s.memory.Renew(bare(ctx), reqs) }); lost != nil {
		results = make([]driver.RenewResult, len(reqs))
		for i := range results {
			results[i].Err = lost
		}
	}
	return results
}

func (s *store) Release(ctx context.Context, req *driver.ReleaseRequest) (released bool, err error) {
	if lost := s.through(ctx, func() { released, err = s.memory.Release(bare(ctx), req) }); lost != nil {
		return false, lost
	}
	return released, err
}

func (s *store) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) (answers []driver.ReleaseAnswer) {
	if lost := s.through(ctx, func() { answers = s.memory.ReleaseMany(bare(ctx), reqs) }); lost != nil {
		answers = make([]driver.ReleaseAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = lost
		}
	}
	return answers
}

func (s *store) Beat(ctx context.Context, places []driver.Ref) (results []driver.BeatResult) {
	if lost := s.through(ctx, func() { results = s.memory.Beat(bare(ctx), places) }); lost != nil {
		results = make([]driver.BeatResult, len(places))
		for i := range results {
			results[i].Err = lost
		}
	}
	return results
}

func (s *store) Inspect(ctx context.Context, n driver.Name) (r driver.Record, err error) {
	if lost := s.through(ctx, func() { r, err = s.memory.Inspect(bare(ctx), n) }); lost != nil {
		return driver.Record{}, lost
	}
	return r, err
}

func (s *store) Break(ctx context.Context, req *driver.BreakRequest) (status driver.BreakStatus, err error) {
	if lost := s.through(ctx, func() { status, err = s.memory.Break(bare(ctx), req) }); lost != nil {
		return 0, lost
	}
	return status, err
}

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var records []driver.Record
		err := s.through(ctx, func() {
			for r, err := range s.memory.List(bare(ctx), prefix) {
				if err == nil {
					records = append(records, r)
				}
			}
		})
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *store) SetValue(ctx context.Context, req *driver.ValueRequest) (held bool, err error) {
	if lost := s.through(ctx, func() { held, err = s.memory.SetValue(bare(ctx), req) }); lost != nil {
		return false, lost
	}
	return held, err
}

func (s *store) Leader(ctx context.Context, n driver.Name) (h *driver.Holder, err error) {
	if lost := s.through(ctx, func() { h, err = s.memory.Leader(bare(ctx), n) }); lost != nil {
		return nil, lost
	}
	return h, err
}
