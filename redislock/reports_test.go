package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The tests here begin with what users of other locks reported; docs/scenarios.md lists
// them. Those that hold on every store are cases of the suite.

func openLocks(tb testing.TB, url string, opts *holdfast.Options) *holdfast.Client {
	tb.Helper()
	if opts == nil {
		opts = &holdfast.Options{}
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	locks, err := holdfast.Open(tb.Context(), url, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = locks.Close() })
	return locks
}

// left are the keys of the server beside the counters of the buckets, which are bounded.
func left(tb testing.TB, s *server) (keys []string) {
	tb.Helper()
	all, err := s.Do("KEYS", "*")
	if err != nil {
		tb.Fatal(err)
	}
	for key := range strings.FieldsSeq(all) {
		if !strings.HasPrefix(key, "hft:") {
			keys = append(keys, key)
		}
	}
	return keys
}

// B001, B050: attempts that are cancelled at any moment leave no key and no renewal.
func TestCancelledAttemptsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	locks := openLocks(t, server.url(), &holdfast.Options{TTL: time.Second})
	for i := range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(time.Millisecond))
		if lease, err := locks.Acquire(ctx, fmt.Sprintf("name-%d", i%3), nil); err == nil {
			_ = lease.Release(t.Context())
		}
		cancel()
	}
	until(t, "nothing is left", func() bool { return len(left(t, server)) == 0 })
	if lease, err := openLocks(t, server.url(), nil).TryAcquire(t.Context(), "name-0", nil); err != nil {
		t.Error(err)
	} else if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// B002: a server that stands still for longer than requests last. What was granted
// meanwhile is undone, and nothing is renewed.
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	locks, other := openLocks(t, server.url(), &holdfast.Options{TTL: time.Second}), openLocks(t, server.url(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	worker.Go(func() {
		for ctx.Err() == nil {
			if lease, err := locks.Acquire(ctx, "name", nil); err == nil {
				_ = lease.Release(ctx)
			}
		}
	})
	until(t, "work is done", func() bool { return len(left(t, server)) > 0 })
	server.Signal(syscall.SIGSTOP)
	<-time.After(1500 * time.Millisecond)
	server.Signal(syscall.SIGCONT)
	cancel()
	worker.Wait()
	lease, err := other.Acquire(t.Context(), "name", &holdfast.AcquireOptions{Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// B091: an attempt may take as long as its lease and longer, on its way, at the server or
// on its way back. It fails then, or the hold is real for as long as it says: who comes next
// is let in after that.
func TestAttemptsAsLongAsTheirLease(t *testing.T) {
	t.Parallel()
	const ttl, lateAnswers = 600 * time.Millisecond, "late answers"
	late := func(_ *server, p *redistest.Proxy, by time.Duration) { p.Late(by) }
	stands := func(s *server, _ *redistest.Proxy, by time.Duration) {
		s.Signal(syscall.SIGSTOP)
		time.AfterFunc(by, func() { s.Signal(syscall.SIGCONT) })
	}
	for what, delay := range map[string]func(*server, *redistest.Proxy, time.Duration){lateAnswers: late, "a server that stands still": stands} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := ownServer(t)
			p := ownProxy(t, server)
			slow, other := openLocks(t, p.URL(), &holdfast.Options{TTL: ttl}), openLocks(t, server.url(), &holdfast.Options{TTL: ttl})
			for i, by := range []time.Duration{0, ttl / 4, 3 * ttl / 10, 2 * ttl, ttl/2 + rand.N(3*ttl/2)} {
				name := fmt.Sprint("name-", i)
				delay(server, p, by)
				lease, err := slow.TryAcquire(t.Context(), name, &holdfast.AcquireOptions{NoRenew: true})
				if err != nil && !errors.Is(err, holdfast.ErrIndeterminate) && !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("delayed by %v: %v", by, err)
				}
				if err == nil && by > ttl && what == lateAnswers {
					t.Errorf("delayed by %v it is held", by)
				}
				next, nextErr := other.Acquire(t.Context(), name, &holdfast.AcquireOptions{Wait: patience})
				now := time.Now()
				if nextErr != nil {
					t.Fatalf("after a delay of %v: %v", by, nextErr)
				}
				if err == nil {
					if end, _ := lease.Deadline(); end.After(now) {
						t.Errorf("delayed by %v: the next one was in %v before the end", by, end.Sub(now))
					}
					if next.Token() <= lease.Token() {
						t.Errorf("token %d after %d", next.Token(), lease.Token())
					}
				}
				_ = next.Release(t.Context()) // the server may stand still
				p.Late(0)
			}
		})
	}
}

// B018: waits on many names leave no subscriptions and no connections.
func TestWaitsLeaveNoSubscriptions(t *testing.T) {
	t.Parallel()
	single, cluster := ownServer(t), ownCluster(t, redistest.Default, false)
	for _, d := range []struct {
		url   string
		nodes []*redistest.Server
	}{{single.url(), []*redistest.Server{single.Server}}, {cluster.URL(), cluster.Masters}} {
		holder := openLocks(t, d.url, nil)
		waiters, err := holdfast.Open(t.Context(), d.url, &holdfast.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		clients := func() (n int) {
			for _, node := range d.nodes {
				list, err := node.Do("CLIENT", "LIST", "TYPE", "normal")
				if err != nil {
					t.Fatal(err)
				}
				n += strings.Count(list, "id=")
			}
			return n
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for k := range 50 {
					name := fmt.Sprintf("name-%d-%d", i, k)
					lease, err := holder.Acquire(t.Context(), name, nil)
					if err != nil {
						t.Error(err)
						return
					}
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					if got, err := waiters.Acquire(ctx, name, nil); err == nil {
						t.Error("it was held")
						_ = got.Release(ctx)
					}
					cancel()
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := clients(); n > 6*len(d.nodes) {
			t.Errorf("%d connections", n)
		}
		_ = waiters.Close() // it may say that attempts were cancelled half-way
		until(t, "no channel is left", func() bool {
			for _, node := range d.nodes {
				plain, err := node.Do("PUBSUB", "CHANNELS")
				sharded, err2 := node.Do("PUBSUB", "SHARDCHANNELS")
				if err = errors.Join(err, err2); err != nil || plain+sharded != "" {
					return false
				}
			}
			return true
		})
	}
}

// B027: an answer that comes after the request's time is undone, long before the TTL.
func TestLateGrantIsUndone(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	p := ownProxy(t, server)
	slow, other := openLocks(t, p.URL(), &holdfast.Options{RequestTimeout: 50 * time.Millisecond}), openLocks(t, server.url(), nil)
	p.Late(200 * time.Millisecond)
	if _, err := slow.TryAcquire(t.Context(), "name", nil); !errors.Is(err, holdfast.ErrIndeterminate) {
		t.Errorf("%v", err)
	}
	p.Late(0)
	began := time.Now()
	lease, err := other.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 15*time.Second { // of the TTL's 30
		t.Errorf("it took %v", took)
	}
	_ = lease.Release(t.Context())
}

// Law L5: who holds, and has never waited, so that no message reaches it, learns by its
// next renewal that a person has forced it out, and why. Nothing stays of that.
func TestForcedBreakIsTold(t *testing.T) {
	t.Parallel()
	single, cluster := ownServer(t), ownCluster(t, redistest.Default, false)
	for what, url := range map[string]string{"one server": single.url(), "cluster": cluster.URL()} {
		holder, person := openLocks(t, url, &holdfast.Options{TTL: 3 * time.Second}), openLocks(t, url, nil)
		for name, opts := range map[string]*holdfast.AcquireOptions{
			"exclusive": {}, "shared": {Mode: holdfast.Shared}, "permits": {Permits: 1, Limit: 3},
		} {
			lease, err := holder.Acquire(t.Context(), name, opts)
			if err != nil {
				t.Fatal(err)
			}
			r, err := person.Inspect(t.Context(), name)
			if err != nil || len(r.Holders) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			if err := person.Break(t.Context(), name, holdfast.BreakOptions{Owner: r.Holders[0].Owner, Reason: "hangs since noon", Force: true}); err != nil {
				t.Fatal(err)
			}
			next, err := person.TryAcquire(t.Context(), name, opts)
			if err != nil {
				t.Fatal(err)
			}
			<-lease.Context().Done()
			if cause := context.Cause(lease.Context()); !errors.Is(cause, holdfast.ErrBroken) || !strings.Contains(cause.Error(), "broken by force: hangs since noon") {
				t.Errorf("%s, %s: %v", what, name, cause)
			}
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	until(t, "nothing is left", func() bool { return len(left(t, single)) == 0 })
}

// B036: a hundred who wait for a name that is long held cost the server next to
// nothing.
func TestWaitingIsCheap(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	holder, waiters := openLocks(t, server.url(), nil), openLocks(t, server.url(), nil)
	lease, err := holder.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got, err := waiters.Acquire(ctx, "name", nil); err == nil {
				_ = got.Release(t.Context())
			}
		})
	}
	until(t, "one waits for all", func() bool {
		r, err := holder.Inspect(t.Context(), "name")
		return err == nil && len(r.Waiters) == 1
	})
	calls, began := 0, time.Now()
	for name, n := range commands(t, server.client(t), func() { <-time.After(2 * time.Second) }) {
		if name == "evalsha" {
			calls = n
		}
	}
	if took := time.Since(began); float64(calls) > 10*took.Seconds() {
		t.Errorf("%d calls in %v", calls, took)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}

// B042: names that were waited for, cancelled and released leave nothing.
func TestNamesLeaveNothing(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	one, two := openLocks(t, server.url(), &holdfast.Options{TTL: time.Second}), openLocks(t, server.url(), &holdfast.Options{TTL: time.Second})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for k := range 100 {
				name, mode := fmt.Sprintf("name-%d-%d", i, k), holdfast.Exclusive
				if k%3 == 0 {
					mode = holdfast.Shared
				}
				lease, err := one.Acquire(t.Context(), name, &holdfast.AcquireOptions{Mode: mode})
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(k%5)*time.Millisecond)
				if k%5 > 0 {
					if got, err := two.Acquire(ctx, name, &holdfast.AcquireOptions{Mode: mode}); err == nil {
						_ = got.Release(t.Context())
					}
				}
				cancel()
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	until(t, "nothing is left", func() bool { return len(left(t, server)) == 0 })
}

// B044: an outage shorter than the lease costs nothing; one that is longer ends it, in
// time.
func TestOutagesShortAndLong(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--appendonly", "yes", "--appendfsync", "always")
	const ttl = 8 * time.Second
	locks := openLocks(t, server.url(), &holdfast.Options{TTL: ttl})
	lease, err := locks.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	<-time.After(time.Second)
	server.Signal(syscall.SIGCONT)
	until(t, "it is renewed again", func() bool {
		end, ok := lease.Deadline()
		return ok && time.Until(end) > ttl*7/8
	})
	if !lease.Valid() {
		t.Fatal("a second cost the lease")
	}
	began := time.Now()
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	<-lease.Context().Done()
	if took := time.Since(began); took > ttl+2*time.Second || !errors.Is(context.Cause(lease.Context()), holdfast.ErrLost) {
		t.Errorf("after %v: %v", took, context.Cause(lease.Context()))
	}
}

// Of a thousand who wait nine hundred die, without a trace. Those behind wait no longer than
// a place lives without a heartbeat, and a claim. It takes half a minute, so TestDeadWaiters
// does it without the time, and this one runs with HOLDFAST_FULL alone.
func TestWaitersDie(t *testing.T) {
	if os.Getenv("HOLDFAST_FULL") == "" {
		return
	}
	t.Parallel()
	server := ownServer(t)
	s, dead, alive := server.open(t), server.open(t), server.open(t)
	ref := hold(t, s, "name")
	for range 900 {
		enqueue(t, dead, "name")
	}
	var places []driver.Ref
	for range 100 {
		places = append(places, enqueue(t, alive, "name"))
	}
	began := time.Now()
	free(t, s, ref)
	for granted := false; !granted; <-time.After(500 * time.Millisecond) {
		for _, place := range places { // never two of a name in one batch
			granted = granted || alive.Beat(t.Context(), []driver.Ref{place})[0].Status == driver.Granted
		}
		if time.Since(began) > 2*patience {
			t.Fatal("it never comes to those who live")
		}
	}
	t.Logf("after %v", time.Since(began))
}
