package holdfast_test

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// ferry is a mixer whose exchanges take as long as a test says, and end with ctx.
type ferry struct {
	*spy
	takes  func(acquires, releases []string) (time.Duration, error)
	shards int
}

func newFerry(tb testing.TB, takes func(acquires, releases []string) (time.Duration, error)) *ferry {
	tb.Helper()
	s := newSpy(tb, memlock.NewServer())
	s.remote = true
	return &ferry{spy: s, takes: takes, shards: 1}
}

func (f *ferry) Shard(r driver.Ref) int {
	h := fnv.New32()
	_, _ = h.Write([]byte(r.Name.Key))
	return int(h.Sum32()) % f.shards
}

func (f *ferry) cross(ctx context.Context, acquires, releases []string) error {
	took, err := f.takes(acquires, releases)
	select {
	case <-time.After(took):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *ferry) Classify(err error) driver.Kind { return driver.KindOf(err) }

func (f *ferry) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	a, _ := f.Mix(ctx, reqs, nil)
	return a
}

func (f *ferry) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	_, r := f.Mix(ctx, nil, reqs)
	return r
}

func (f *ferry) Mix(ctx context.Context, acquires []*driver.AcquireRequest, releases []*driver.ReleaseRequest) ([]driver.AcquireAnswer, []driver.ReleaseAnswer) {
	if err := f.cross(ctx, keysOf(acquires, nil), keysOf(nil, releases)); err != nil {
		acquired, released := make([]driver.AcquireAnswer, len(acquires)), make([]driver.ReleaseAnswer, len(releases))
		for i := range acquired {
			acquired[i].Err = err
		}
		for i := range released {
			released[i].Err = err
		}
		return acquired, released
	}
	return f.spy.AcquireMany(ctx, acquires), f.spy.ReleaseMany(ctx, releases)
}

// One who has little time takes none from those who travel with him.
func TestShortTTLDoesNotHurryTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFerry(t, func(_, _ []string) (time.Duration, error) { return 100 * time.Millisecond, nil })
		c := open(t, f, nil)
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				o, hurried := &holdfast.AcquireOptions{NoRenew: true}, i%8 == 7
				if hurried {
					o.TTL = 200 * time.Millisecond // its requests have a third of that
				}
				l, err := c.TryAcquire(t.Context(), strconv.Itoa(i), o)
				if (err != nil) != hurried {
					t.Error(i, err)
				}
				if err == nil {
					give(t, l)
				}
			})
		}
		all.Wait()
	})
}

// What blocked once travels alone, and nobody waits for it.
func TestMixerDoesNotWaitForWhatBlockedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		f := newFerry(t, func(acquires, _ []string) (time.Duration, error) {
			if !slices.Contains(acquires, name("slow").Key) || sent.Add(1) > 3 {
				return roundTrip, nil
			}
			return long, nil
		})
		c := open(t, f, nil)
		slow := later(t.Context(), c, "slow", nil)
		time.Sleep(time.Second) // it is away by itself
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				for sent.Load() <= 3 {
					begun := time.Now()
					l, err := c.Acquire(t.Context(), strconv.Itoa(i), nil)
					if took := time.Since(begun); err != nil || took > patience/2 {
						t.Errorf("took %v: %v", took, err)
						return
					}
					_ = l.Release(t.Context())
				}
			})
		}
		all.Wait()
		if got := <-slow; got.err != nil {
			t.Error(got.err)
		}
	})
}

// A batch that has landed holds nobody up, however busy the process is.
func TestMixerInABusyProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	var hog sync.WaitGroup
	hog.Go(func() {
		for !stop.Load() { //nolint:revive // it computes
		}
	})
	defer hog.Wait()
	defer stop.Store(true)
	c := open(t, newFerry(t, func(_, _ []string) (time.Duration, error) { return roundTrip, nil }), nil)
	for callers := 40; callers > 0; callers -= 3 { // ever fewer come back
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				if l, err := c.Acquire(t.Context(), strconv.Itoa(i), nil); err != nil {
					t.Error(err)
				} else if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// Whatever goes wrong with exchanges, every call gets its answer.
func TestMixerLosesNoCall(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			source := rand.New(rand.NewPCG(seed, 1))
			random := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return source.IntN(n)
			}
			f := newFerry(t, func(_, _ []string) (time.Duration, error) {
				took := time.Duration(random(3000)) * time.Microsecond
				switch random(20) {
				case 0:
					took = time.Minute // longer than its ctx
				case 1:
					took = patience + roundTrip
				case 2:
					return took, down()
				case 3:
					return took, torn()
				}
				return took, nil
			})
			f.shards = 1 + int(seed%3)
			c := open(t, f, nil)
			var all sync.WaitGroup
			for i := range 1 + int(seed*17%90) {
				all.Go(func() { comeAndGo(t, c, i, random) })
			}
			all.Wait()
		})
	}
}

// comeAndGo takes one name after the other, and often gives up.
func comeAndGo(t *testing.T, c *holdfast.Client, number int, random func(n int) int) {
	t.Helper()
	for i := range 30 {
		timeout, impatient := time.Hour, random(5) == 0
		if impatient {
			timeout = time.Duration(random(2000)) * time.Microsecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		l, err := c.Acquire(ctx, strconv.Itoa((number+i)%70), nil)
		cancel()
		if err == nil {
			_ = l.Release(t.Context()) // it may fail: then it goes on in the background
		} else if !impatient {
			t.Error(err)
		}
	}
}
