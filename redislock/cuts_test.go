package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// B052: the holder hears nothing from the server any more, others do. It knows that it has
// lost before the next one is let in, and can lock again when the network is back.
func TestPartitionedHolder(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	p := ownProxy(t, server)
	far, near := openLocks(t, p.URL(), &holdfast.Options{TTL: 2 * time.Second}), openLocks(t, server.url(), nil)
	lease, err := far.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Late(5 * time.Second)
	next, err := near.Acquire(t.Context(), "name", &holdfast.AcquireOptions{Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, holdfast.ErrLost) || lease.Valid() {
		t.Errorf("the next one is in, and the first: valid %t, %v", lease.Valid(), cause)
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	p.Late(0)
	p.Cut()
	if err := lease.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the late release: %v", err)
	}
	if !next.Valid() {
		t.Error("the late release ended the next one's lease")
	}
	if err := next.Release(t.Context()); err != nil {
		t.Error(err)
	}
	again, err := far.Acquire(t.Context(), "name", &holdfast.AcquireOptions{Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// B117: that the connection for messages is cut again and again is no loss; who waits waits
// on, and is told.
func TestCutsOfTheEarAreNoLoss(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	locks, other := openLocks(t, server.url(), &holdfast.Options{TTL: 3 * time.Second}), openLocks(t, server.url(), nil)
	lease, err := locks.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := other.Acquire(t.Context(), "taken", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 2)
	wait := func(c *holdfast.Client, name string) {
		next, err := c.Acquire(t.Context(), name, &holdfast.AcquireOptions{Wait: patience})
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}
	go wait(locks, "taken") // so that both clients listen
	go wait(other, "name")
	until(t, "both wait", func() bool {
		one, err1 := locks.Inspect(t.Context(), "name")
		two, err2 := locks.Inspect(t.Context(), "taken")
		return errors.Join(err1, err2) == nil && len(one.Waiters)+len(two.Waiters) == 2
	})
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if _, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
			t.Fatal(err)
		}
	}
	if !lease.Valid() || lease.Context().Err() != nil || !taken.Valid() {
		t.Errorf("lost: %v", context.Cause(lease.Context()))
	}
	if err := errors.Join(lease.Release(t.Context()), taken.Release(t.Context()), <-got, <-got); err != nil {
		t.Error(err)
	}
}

// B053: however often the connections of those break who take and return permits, none is
// lost for good.
func TestPermitsThroughCuts(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	p := ownProxy(t, server)
	locks := openLocks(t, p.URL(), &holdfast.Options{TTL: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := locks.Acquire(ctx, "name", &holdfast.AcquireOptions{Permits: 1, Limit: 3, Wait: 300 * time.Millisecond})
				if err == nil {
					_ = lease.Release(ctx)
				}
			}
		})
	}
	for ctx.Err() == nil {
		<-time.After(50*time.Millisecond + rand.N(150*time.Millisecond))
		p.Cut()
	}
	wg.Wait()
	fresh := openLocks(t, server.url(), nil)
	until(t, "all permits are back", func() bool {
		all, err := fresh.TryAcquire(t.Context(), "name", &holdfast.AcquireOptions{Permits: 3, Limit: 3})
		if err != nil {
			if !errors.Is(err, holdfast.ErrHeld) {
				t.Error(err)
			}
			return false
		}
		return all.Release(t.Context()) == nil
	})
}
