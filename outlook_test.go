package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// slowLooks is a store that answers who leads when a test lets it.
type slowLooks struct {
	*spy
	look chan error
}

func (s *slowLooks) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	select {
	case err := <-s.look:
		if err != nil {
			return nil, err
		}
		return s.spy.Leader(ctx, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An error that no further look can mend ends all loops: also those that came while
// the look was on its way, and wait for a later one.
func TestLastLookEndsAllObservers(t *testing.T) {
	for what, end := range map[string]func(*slowLooks, *holdfast.Client) error{
		"closed": func(_ *slowLooks, c *holdfast.Client) error {
			_ = c.Close()
			return holdfast.ErrClosed
		},
		"denied": func(s *slowLooks, _ *holdfast.Client) error {
			s.look <- &driver.Failure{Kind: driver.Denied, Err: context.Canceled}
			return holdfast.ErrDenied
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &slowLooks{newSpy(t, memlock.NewServer()), make(chan error)}
			c := open(t, s, nil)
			ended := make(chan error, 2)
			for range 2 {
				go func() {
					var last error
					for _, last = range c.Election("x").Observe(t.Context()) { //nolint:revive // the last counts
					}
					ended <- last
				}()
				synctest.Wait() // its look is on its way
			}
			kind := end(s, c)
			synctest.Wait()
			for range 2 {
				select {
				case err := <-ended:
					want(t, err, kind)
				default:
					t.Errorf("%s: a loop goes on", what)
				}
			}
		})
	}
}

// shaky is a store whose looks take their time and sometimes fail or show what was
// there before, and whose watch breaks again and again.
type shaky struct {
	*spy
	before atomic.Pointer[driver.Holder]
}

func (s *shaky) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	time.Sleep(rand.N(20 * time.Millisecond))
	h, err := s.spy.Leader(ctx, n)
	time.Sleep(rand.N(20 * time.Millisecond)) // it is a moment old
	switch old := s.before.Load(); {
	case rand.N(10) == 0:
		return nil, down()
	case old != nil && rand.N(10) == 0:
		return old, nil
	case rand.N(2) == 0:
		s.before.Store(h)
	}
	return h, err
}

func (s *shaky) Watch(ctx context.Context, n driver.Name, changed func()) error {
	if rand.N(3) == 0 {
		return down()
	}
	ctx, cancel := context.WithTimeout(ctx, rand.N(3*time.Second))
	defer cancel()
	return s.spy.Watch(ctx, n, changed)
}

// Whoever observes, from whenever on, and as slow as may be, is told nothing older
// than before, and the latest in the end.
func TestObserversAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := &shaky{spy: newSpy(t, server)}
		c := open(t, s, nil)
		var observers sync.WaitGroup
		observe := func() {
			patience := rand.N(500 * time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if rand.N(2) == 0 {
				ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Second))
				defer cancel()
			}
			var last holdfast.Leader
			for l, err := range c.Election("x").Observe(ctx) {
				if errors.Is(err, holdfast.ErrClosed) {
					break
				}
				if err == nil && !l.None() {
					if l.Token < last.Token || l.Token == last.Token && len(l.Value) < len(last.Value) {
						t.Errorf("%v after %v", l, last)
					}
					last = l
				}
				time.Sleep(rand.N(patience + 1))
			}
			if ctx.Err() == nil && last.Value != "the last" {
				t.Errorf("the last that was seen is %v", last)
			}
		}
		leads := newSpy(t, server).client(t).Election("x")
		for range 20 {
			observers.Go(observe)
			observers.Go(observe)
			term := lead(t, leads, "0")
			for i := range 10 {
				time.Sleep(rand.N(200 * time.Millisecond))
				if err := term.Proclaim(t.Context(), strings.Repeat("1", i+1)); err != nil {
					t.Error(err)
				}
			}
			resign(t, term)
		}
		term := lead(t, leads, "the last")
		time.Sleep(15 * time.Second)
		_ = c.Close()
		observers.Wait()
		resign(t, term)
	})
}
