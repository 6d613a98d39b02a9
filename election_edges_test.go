package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// A Run that waits until the late work of another Run is over does not wait for it
// beyond Close.
func TestCloseEndsRunThatWaitsForLateWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		c := s.client(t)
		late := make(chan struct{})
		defer close(late)
		run := func(fn func(context.Context, *holdfast.Term) error) <-chan error {
			done := make(chan error, 1)
			go func() { done <- c.Election("x").Run(t.Context(), fn) }()
			synctest.Wait()
			return done
		}
		run(func(context.Context, *holdfast.Term) error { <-late; return nil })
		second := run(func(context.Context, *holdfast.Term) error {
			t.Error("works beside the late one")
			return nil
		})
		s.away.Store(true)
		time.Sleep(2 * holdfast.DefaultTTL)
		s.away.Store(false)
		time.Sleep(time.Minute)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-second:
			want(t, err, holdfast.ErrClosed)
		default:
			t.Error("goes on after Close")
		}
	})
}

// A campaign whose ctx ends while it cannot speak has waited in vain like one that
// was not elected, and says what for.
func TestCampaignRunsOutBeforeItSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		s.mute.Store(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := s.client(t).Election("x").Campaign(ctx, "me")
		want(t, err, holdfast.ErrTimeout, holdfast.ErrUnavailable, context.DeadlineExceeded)
		if e := holdfast.ErrTimeout; err != nil && err.Error() != `holdfast: campaign "x" on memory: `+e.Error()+": context deadline exceeded; store unavailable; store is down" {
			t.Errorf("says %v", err)
		}
		synctest.Wait()
		free(t, server)
	})
}

// voice answers what a leader says of itself.
type voice struct {
	*spy
	onSetValue func() (held bool, err error)
}

func (s voice) SetValue(context.Context, *driver.ValueRequest) (bool, error) { return s.onSetValue() }

// A client that is closed while a candidate speaks ends the campaign as any other
// call.
func TestCloseWhileCandidateSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *holdfast.Client
		c = open(t, voice{newSpy(t, memlock.NewServer()), func() (bool, error) {
			go func() { _ = c.Close() }()
			time.Sleep(time.Second)
			return true, nil
		}}, nil)
		_, err := c.Election("x").Campaign(t.Context(), "me")
		want(t, err, holdfast.ErrClosed)
	})
}

// A store that forgets every grant at once is not asked without a pause.
func TestCampaignsOnForgetfulStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		forgets := func() (bool, error) {
			for r, err := range s.List(ctx, "") {
				if err != nil {
					return false, err
				}
				if _, err := s.Break(ctx, &driver.BreakRequest{Name: name("x"), Owner: r.Holders[0].Owner, Force: true, Reason: "lost"}); err != nil {
					return false, err
				}
			}
			return false, nil
		}
		_, err := open(t, voice{s, forgets}, nil).Election("x").Campaign(ctx, "me")
		want(t, err, holdfast.ErrTimeout)
		if n := s.acquires.Load(); n < 10 || n > 200 {
			t.Errorf("%d attempts in 10 s", n)
		}
	})
}

// A term that begins by a hand-over is not called off before its first renewal,
// whatever its TTL, the largest grace, and how long ago the place was last beaten.
func TestTermAfterHandOverLasts(t *testing.T) {
	for ttl := 1100 * time.Millisecond; ttl <= 7*time.Second; ttl += 300 * time.Millisecond {
		for waited := time.Duration(0); waited < 1100*time.Millisecond; waited += 90 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) { handsOverTo(t, ttl, waited) })
		}
	}
}

func handsOverTo(t *testing.T, ttl, waited time.Duration) {
	t.Helper()
	server := memlock.NewServer()
	first := lead(t, newSpy(t, server).client(t).Election("x"), "")
	next := newSpy(t, server).client(t).Election("x").With(holdfast.ElectionOptions{TTL: ttl, Grace: ttl/3 - time.Millisecond})
	done := make(chan error, 1)
	go func() {
		done <- next.Run(t.Context(), func(ctx context.Context, _ *holdfast.Term) error {
			time.Sleep(2 * ttl)
			if ctx.Err() != nil {
				t.Errorf("TTL %v, after a wait of %v: called off: %v", ttl, waited, context.Cause(ctx))
			}
			return nil
		})
	}()
	synctest.Wait()
	time.Sleep(waited)
	resign(t, first)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
