package holdfast_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// blender is a store whose exchanges carry attempts and releases together.
type blender struct {
	*spy
	t        *testing.T
	stuck    atomic.Bool // the next exchange takes long
	away     atomic.Int32
	most     atomic.Int32 // exchanges that were away at once
	mixes    atomic.Int32
	exchange atomic.Int32
}

func newBlender(t *testing.T) *blender {
	t.Helper()
	s := newSpy(t, memlock.NewServer())
	s.remote = true
	return &blender{spy: s, t: t}
}

const (
	roundTrip = time.Millisecond
	long      = 10 * time.Second
	patience  = 50 * time.Millisecond // of the committer, with one that is stuck
)

// travel is the way there and back.
func (b *blender) travel(names []string) {
	b.exchange.Add(1)
	n := b.away.Add(1)
	defer b.away.Add(-1)
	for most := b.most.Load(); n > most; most = b.most.Load() {
		b.most.CompareAndSwap(most, n)
	}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			b.t.Errorf("two requests of %q in one batch", name)
		}
		seen[name] = true
	}
	if b.stuck.CompareAndSwap(true, false) {
		time.Sleep(long)
	}
	time.Sleep(roundTrip)
}

func keysOf(acquires []*driver.AcquireRequest, releases []*driver.ReleaseRequest) (keys []string) {
	for _, r := range acquires {
		keys = append(keys, r.Name.Key)
	}
	for _, r := range releases {
		keys = append(keys, r.Name.Key)
	}
	return keys
}

func (b *blender) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	b.travel(keysOf(reqs, nil))
	return b.spy.AcquireMany(ctx, reqs)
}

func (b *blender) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	b.travel(keysOf(nil, reqs))
	return b.spy.ReleaseMany(ctx, reqs)
}

func (b *blender) Mix(ctx context.Context, acquires []*driver.AcquireRequest, releases []*driver.ReleaseRequest) ([]driver.AcquireAnswer, []driver.ReleaseAnswer) {
	b.mixes.Add(1)
	b.travel(keysOf(acquires, releases))
	return b.spy.AcquireMany(ctx, acquires), b.spy.ReleaseMany(ctx, releases)
}

// Many callers of a mixer share one exchange at a time, which carries attempts and
// releases together; few go at once.
func TestMixerCarriesAllTogether(t *testing.T) {
	for _, callers := range []int{1, 4, 64} {
		synctest.Test(t, func(t *testing.T) {
			const pairs = 20
			b := newBlender(t)
			c := open(t, b, nil)
			begun := time.Now()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					time.Sleep(time.Duration(i) * roundTrip / 7) // they come one by one
					for range pairs {
						l, err := c.Acquire(t.Context(), strconv.Itoa(i), nil)
						if err != nil {
							t.Error(err)
							return
						}
						if err := l.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			took, most, sent := time.Since(begun), b.most.Load(), int(b.exchange.Load())
			switch {
			case callers <= 4 && (took > 2*pairs*roundTrip+roundTrip || sent != 2*pairs*callers):
				t.Errorf("%d callers took %v and %d exchanges", callers, took, sent)
			case callers == 64 && (most > 8 || b.mixes.Load() == 0 || sent > 2*pairs*callers/8):
				t.Errorf("%d callers made %d exchanges, %d of them mixed, up to %d at once", callers, sent, b.mixes.Load(), most)
			}
		})
	}
}

// An exchange that takes long does not hold up those who come after it.
func TestMixerDoesNotWaitForOneThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlender(t)
		c := open(t, b, nil)
		b.stuck.Store(true)
		var all sync.WaitGroup
		ask := func(from, to int, most time.Duration) {
			for i := from; i < to; i++ {
				all.Go(func() {
					begun := time.Now()
					l, err := c.Acquire(t.Context(), strconv.Itoa(i), nil)
					if took := time.Since(begun); err != nil || took > most {
						t.Errorf("attempt %d took %v: %v", i, took, err)
						return
					}
					_ = l.Release(t.Context())
				})
			}
		}
		ask(0, 32, long+time.Second)
		time.Sleep(roundTrip / 2) // now they are away, stuck or not
		ask(32, 64, 4*patience)
		all.Wait()
	})
}
