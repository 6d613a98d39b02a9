package holdfast_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Thousands of leases, acquired at different times, renew in few commands.
func TestRenewalsTravelInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		c := s.client(t)
		for i := range 10_000 {
			if _, err := c.Acquire(t.Context(), strconv.Itoa(i), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		before := s.renews.Load()
		time.Sleep(time.Minute)
		if perSecond := (s.renews.Load() - before) / 60; perSecond > 50 {
			t.Errorf("%d renewal commands a second for 10,000 leases", perSecond)
		}
	})
}

// One renewal that hangs delays no other: the batch that it was in comes again
// in halves, until it travels alone.
func TestLateBatchComesAgainInHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		s.onRenew = func(ctx context.Context, reqs []driver.RenewRequest) error {
			for _, r := range reqs {
				if r.Name.Full == "stuck" {
					<-ctx.Done()
					return &driver.Failure{Kind: driver.Indeterminate, Err: ctx.Err()}
				}
			}
			return nil
		}
		c := s.client(t)
		stuck, err := c.Acquire(t.Context(), "stuck", nil)
		if err != nil {
			t.Fatal(err)
		}
		var others []*holdfast.Lease
		for i := range 64 {
			l, err := c.Acquire(t.Context(), strconv.Itoa(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, l)
		}
		<-stuck.Context().Done()
		time.Sleep(2 * time.Minute)
		for _, l := range others {
			if !l.Valid() {
				t.Errorf("%s was lost with the stuck one", l.Name())
			}
		}
	})
}

// A deadline is told even if the store never answers and ignores ctx.
func TestLossIsToldThoughTheRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		hang := make(chan struct{})
		s.onRenew = func(context.Context, []driver.RenewRequest) error {
			<-hang
			return &driver.Failure{Kind: driver.Unavailable, Err: errors.New("gone")}
		}
		c := s.client(t)
		start := time.Now()
		l, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		<-l.Context().Done()
		if took := time.Since(start); took > 3*time.Second-80*time.Millisecond {
			t.Errorf("told after %v: later than the deadline", took)
		}
		if err := l.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("release of the lost lease: %v", err)
		}
		close(hang)
	})
}

// A renewal that is answered after the deadline does not bring the lease back.
func TestLateRenewalRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		c := s.client(t)
		var slow atomic.Bool
		slow.Store(true)
		s.onRenew = func(context.Context, []driver.RenewRequest) error {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		l, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if l.Valid() || l.Context().Err() == nil {
			t.Error("the lease lives after its deadline")
		}
		slow.Store(false)
		if err := l.Renew(t.Context(), 3*time.Second); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("renewing a lost lease: %v", err)
		}
	})
}
