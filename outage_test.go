package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// A request that its caller called off says nothing of the store: those behind him
// are told of no outage, and what they wait for is still the holder.
func TestCancelledRequestIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s, tale := newPlain(t, server), &story{}
		var slow atomic.Bool
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			if slow.Swap(false) {
				<-ctx.Done()
				return driver.AcquireResult{}, torn()
			}
			time.Sleep(100 * time.Millisecond)
			return s.inner.Acquire(ctx, req)
		}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		held := take(t, newSpy(t, server).client(t), "x", nil)
		slow.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		first := later(ctx, c, "x", nil)
		synctest.Wait()
		second := later(t.Context(), c, "x", nil)
		synctest.Wait()
		cancel()
		want(t, (<-first).err, context.Canceled)
		time.Sleep(time.Second)
		tale.checkOnly(t, holdfast.EventStoreDown, "")
		give(t, held)
		give(t, (<-second).lease)
	})
}

// Nor does the last attempt of a bounded wait, which has little time.
func TestHastyLastAttemptIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s, tale := newPlain(t, server), &story{}
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			select {
			case <-time.After(300 * time.Millisecond):
				return s.inner.Acquire(ctx, req)
			case <-ctx.Done():
				return driver.AcquireResult{}, torn()
			}
		}
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		held := take(t, newSpy(t, server).client(t), "x", nil)
		first := later(t.Context(), c, "x", &holdfast.AcquireOptions{Wait: time.Second})
		synctest.Wait()
		second := later(t.Context(), c, "x", nil)
		want(t, (<-first).err, holdfast.ErrTimeout)
		time.Sleep(time.Second)
		tale.checkOnly(t, holdfast.EventStoreDown, "")
		give(t, held)
		give(t, (<-second).lease)
	})
}

// A place whose beats are refused for good ends the wait, as an attempt would.
func TestRefusedBeatEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := &refusedBeats{queueing: newQueueing(t, server)}
		c := open(t, s, nil)
		held := take(t, newSpy(t, server).client(t), "x", nil)
		out := later(t.Context(), c, "x", nil)
		time.Sleep(500 * time.Millisecond)
		s.refuse.Store(true)
		time.Sleep(time.Second)
		select {
		case o := <-out:
			want(t, o.err, holdfast.ErrDenied)
		default:
			t.Fatal("the wait goes on")
		}
		give(t, held)
		synctest.Wait()
		free(t, server)
	})
}

// refusedBeats denies them when a test says so.
type refusedBeats struct {
	*queueing
	refuse atomic.Bool
}

func (s *refusedBeats) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	results := s.queueing.Beat(ctx, places)
	for i := range results {
		if s.refuse.Load() {
			results[i] = driver.BeatResult{Err: &driver.Failure{Kind: driver.Denied, Err: context.Canceled}}
		}
	}
	return results
}
