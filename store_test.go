package holdfast_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// memory is all that the memory store can do.
type memory interface {
	driver.Queuer
	driver.Batcher
	driver.Inspector
	driver.Lister
	driver.Breaker
	driver.Watcher
}

// spy is a memory store that counts what is asked of it, and answers as a test
// wants.
type spy struct {
	memory
	acquires, renews, releases, beats, looks, watches atomic.Int64
	// remote makes it a store behind a network: requests have timeouts.
	remote bool
	// away refuses everything about leaders: releases, renewals, values, looks.
	away atomic.Bool
	// mute is how many values more are refused.
	mute atomic.Int64
	// unwatched stores tell of no changes by themselves.
	unwatched bool
	// old is shown in place of the present leader.
	old atomic.Pointer[driver.Holder]
	// onRenew, if set, runs before a renewal; an error fails the whole batch.
	onRenew func(ctx context.Context, reqs []driver.RenewRequest) error
	// onRelease, if set, runs before a batch of releases.
	onRelease func()
	// onAcquire, if set, runs before a batch of attempts.
	onAcquire func(ctx context.Context, reqs []*driver.AcquireRequest) error
}

func newSpy(tb testing.TB, server *memlock.Server) *spy {
	tb.Helper()
	inner, ok := server.Store().(memory)
	if !ok {
		tb.Fatal("the memory store lacks an ability")
	}
	return &spy{memory: inner}
}

// client makes a client of the store, closed when the test ends.
func (s *spy) client(tb testing.TB) *holdfast.Client {
	tb.Helper()
	c, err := holdfast.New(s, &holdfast.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *spy) Properties() driver.Properties {
	p := s.memory.Properties()
	p.Local = !s.remote
	return p
}

func (s *spy) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	a := s.AcquireMany(ctx, []*driver.AcquireRequest{req})[0]
	return a.AcquireResult, a.Err
}

func (s *spy) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	s.acquires.Add(1)
	if s.onAcquire != nil {
		if err := s.onAcquire(ctx, reqs); err != nil {
			answers := make([]driver.AcquireAnswer, len(reqs))
			for i := range answers {
				answers[i].Err = err
			}
			return answers
		}
	}
	return s.memory.AcquireMany(ctx, reqs)
}

func (s *spy) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	s.renews.Add(1)
	if s.away.Load() {
		results := make([]driver.RenewResult, len(reqs))
		for i := range results {
			results[i].Err = down()
		}
		return results
	}
	if s.onRenew != nil {
		if err := s.onRenew(ctx, reqs); err != nil {
			results := make([]driver.RenewResult, len(reqs))
			for i := range results {
				results[i].Err = err
			}
			return results
		}
	}
	return s.memory.Renew(ctx, reqs)
}

func (s *spy) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	a := s.ReleaseMany(ctx, []*driver.ReleaseRequest{req})[0]
	return a.Released, a.Err
}

func (s *spy) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	s.releases.Add(1)
	if s.away.Load() {
		answers := make([]driver.ReleaseAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = down()
		}
		return answers
	}
	if s.onRelease != nil {
		s.onRelease()
	}
	return s.memory.ReleaseMany(ctx, reqs)
}

func (s *spy) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	s.beats.Add(1)
	return s.memory.Beat(ctx, places)
}

func (s *spy) SetValue(ctx context.Context, req *driver.ValueRequest) (bool, error) {
	if s.away.Load() || s.mute.Add(-1) >= 0 {
		return false, down()
	}
	return s.memory.SetValue(ctx, req)
}

func (s *spy) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	s.looks.Add(1)
	if s.away.Load() {
		return nil, down()
	}
	if old := s.old.Load(); old != nil {
		return old, nil
	}
	return s.memory.Leader(ctx, n)
}

func (s *spy) Watch(ctx context.Context, n driver.Name, changed func()) error {
	s.watches.Add(1)
	if s.unwatched {
		return down()
	}
	return s.memory.Watch(ctx, n, changed)
}

// name is a name as a client without a prefix gives it to a store for raw keys.
func name(full string) driver.Name { return driver.Name{Key: ":" + full, Full: full} }
