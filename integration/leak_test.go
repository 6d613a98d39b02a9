package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/faulty"
	"github.com/holdfast-go/holdfast/memlock"
)

// leakCase is a way to use a client after which nothing may be left: no
// goroutine, and no descriptor.
type leakCase struct {
	name string
	use  func(t *testing.T, c *holdfast.Client)
}

var leakCases = []leakCase{
	{"pairs", leakPairs},
	{"many names", leakNames},
	{"failed tries", leakTries},
	{"cancelled waits", leakWaits},
	{"lost holds", leakLost},
}

// These tests look at all goroutines of the process, so they may not run beside
// others.
func TestLeaks(t *testing.T) {
	for _, s := range stores {
		for _, c := range leakCases {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				url := s.start(t)
				noLeak(t, func() {
					client := openClient(t, url, &holdfast.Options{TTL: time.Second})
					c.use(t, client)
					closeClient(t, client)
				})
			})
		}
		t.Run(s.name+"/close at any time", func(t *testing.T) {
			url := s.start(t)
			for range 40 {
				noLeak(t, func() { closeAnyTime(t, url) })
			}
		})
	}
}

// noLeak compares goroutines and descriptors before and after.
func noLeak(t *testing.T, use func()) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	files := descriptors(t)
	use()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	if now := descriptors(t); now > files {
		t.Errorf("%d descriptors before, %d after", files, now)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// pairs runs n acquires and releases of names on 32 goroutines.
func pairs(t *testing.T, c *holdfast.Client, n, names int) {
	t.Helper()
	const callers = 32
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for k := i; k < n; k += callers {
				l, err := c.Acquire(ctx, fmt.Sprintf("name-%d", k%names), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func leakPairs(t *testing.T, c *holdfast.Client) {
	t.Helper()
	pairs(t, c, 10_000, 7)
}

// leakNames looks at the descriptors while the client is open, too: it may keep
// some for the names that it may need again.
func leakNames(t *testing.T, c *holdfast.Client) {
	t.Helper()
	const kept = 400
	before := descriptors(t)
	pairs(t, c, 2_000, 2_000)
	if now := descriptors(t); now > before+kept {
		t.Errorf("%d descriptors before, %d after 2,000 names", before, now)
	}
}

func leakTries(t *testing.T, c *holdfast.Client) {
	t.Helper()
	ctx := t.Context()
	l, err := c.TryAcquire(ctx, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2_000 {
		if _, err := c.TryAcquire(ctx, "x", nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
}

// leakWaits cancels waits while they begin, last, and are about to end.
func leakWaits(t *testing.T, c *holdfast.Client) {
	t.Helper()
	for range 20 {
		l, err := c.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				defer cancel()
				if won, err := c.Acquire(ctx, "x", nil); err == nil {
					_ = won.Release(ctx)
				}
			})
		}
		pause(nil, rand.N(20*time.Millisecond))
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func leakLost(t *testing.T, c *holdfast.Client) {
	t.Helper()
	var ends []<-chan struct{}
	for i := range 100 {
		l, err := c.Acquire(t.Context(), fmt.Sprintf("lost-%d", i), &holdfast.AcquireOptions{MaxHold: holdfast.MinTTL})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, l.Context().Done())
	}
	for _, end := range ends {
		<-end
	}
}

// closeAnyTime closes a client while goroutines wait, hold, release and try.
func closeAnyTime(t *testing.T, url string) {
	t.Helper()
	c := openClient(t, url, &holdfast.Options{TTL: time.Second})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				o := &holdfast.AcquireOptions{}
				if i%3 == 0 {
					o.Mode = holdfast.Shared
				}
				l, err := c.Acquire(t.Context(), fmt.Sprintf("name-%d", i%2), o)
				if errors.Is(err, holdfast.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				pause(l.Context().Done(), rand.N(time.Millisecond))
				if i%4 != 0 { // the others hold until Close
					_ = l.Release(t.Context())
				} else if rand.N(20) > 0 {
					_ = l.Release(t.Context())
				}
			}
		})
	}
	pause(nil, rand.N(20*time.Millisecond))
	closeClient(t, c)
	wg.Wait()
}

// A store that is away costs the holds, and nothing more: also not when the
// client is closed while it is away.
func TestLeaksStoreDown(t *testing.T) {
	noLeak(t, func() {
		var wg sync.WaitGroup
		for _, shape := range faulty.Shapes {
			wg.Go(func() {
				store, line, err := faulty.Wrap(memlock.New(), shape, faulty.Plan{Seed: rand.Uint64(), Delay: time.Millisecond})
				if err != nil {
					t.Error(err)
					return
				}
				c, err := holdfast.New(store, &holdfast.Options{TTL: holdfast.MinTTL, Logger: silent})
				if err != nil {
					t.Error(err)
					return
				}
				loseAll(t, c, line)
				_ = c.Close() // what the store did not answer in time is named in the error
			})
		}
		wg.Wait()
	})
}

func loseAll(t *testing.T, c *holdfast.Client, line *faulty.Line) {
	t.Helper()
	var leases []*holdfast.Lease
	for i := range 50 {
		l, err := c.Acquire(t.Context(), fmt.Sprintf("name-%d", i), nil)
		if err != nil {
			t.Error(err)
			return
		}
		leases = append(leases, l)
	}
	line.Down()
	for _, l := range leases {
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("ended with %v", cause)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Acquire(ctx, "another", nil); !errors.Is(err, holdfast.ErrTimeout) {
		t.Errorf("an acquire of a store that is away: %v", err)
	}
}
