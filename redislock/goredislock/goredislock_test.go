package goredislock

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) {
	drivertest.Main(openURL)
	_ = flag.Set("test.parallel", "4") // most of them wait most of the time; the command line still wins
	os.Exit(m.Run())
}

// clientFor makes a client of the kind that a URL of package redislock means.
func clientFor(text string) (redis.UniversalClient, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	addrs := strings.Split(u.Host, ",")
	switch u.Scheme {
	case "redis+cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), nil
	case "redis+sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: addrs, MasterName: u.Path[1:]}), nil
	}
	return redis.NewClient(&redis.Options{Addr: addrs[0]}), nil
}

func openURL(_ context.Context, text string) (driver.Store, error) {
	client, err := clientFor(text)
	if err != nil {
		return nil, err
	}
	return open(&link{client: client, own: true}, nil)
}

func harness(at string) drivertest.Harness {
	return drivertest.Harness{
		New:   func(ctx context.Context) (driver.Store, error) { return openURL(ctx, at) },
		Spawn: drivertest.Self(at),
	}
}

func start(tb testing.TB, args ...string) *redistest.Server {
	tb.Helper()
	s, err := redistest.Start(redistest.Default, args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(start(t, "--appendonly", "yes", "--appendfsync", "always").URL()))
}

func startSentinel(tb testing.TB) *redistest.Replicated {
	tb.Helper()
	r, err := redistest.StartSentinel(redistest.Default)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Remove)
	return r
}

func startCluster(tb testing.TB) *redistest.Cluster {
	tb.Helper()
	c, err := redistest.StartCluster(redistest.Default, false)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Remove)
	return c
}

// The quick cases; all of them if HOLDFAST_FULL is set.
func TestConformanceElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sentinel", "cluster"} {
		t.Run(name, func(t *testing.T) {
			full := os.Getenv("HOLDFAST_FULL") != ""
			if !full { // the full suite keeps the machine busy by itself
				t.Parallel()
			}
			var h drivertest.Harness
			if name == "sentinel" {
				h = harness(startSentinel(t).URL())
			} else {
				h = harness(startCluster(t).URL())
			}
			if full {
				drivertest.Run(t, h)
				return
			}
			_ = drivertest.Check(t.Context(), h, func(r drivertest.Result) { // it tells of each
				if r.Err != nil {
					t.Errorf("%s, law %s: %s\n%v", r.ID, r.Law, r.Rule, r.Err)
				}
			})
		})
	}
}

// lockAndWait takes a name with one client and waits for it with another.
func lockAndWait(t *testing.T, one, two *holdfast.Client) {
	t.Helper()
	lease, err := one.Acquire(t.Context(), t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		next, err := two.Acquire(t.Context(), t.Name(), nil)
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	for waiting := false; !waiting; {
		r, err := one.Inspect(t.Context(), t.Name())
		if err != nil {
			t.Fatal(err)
		}
		waiting = len(r.Waiters) == 1
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func clientOf(t *testing.T, client redis.UniversalClient, opts *Options) *holdfast.Client {
	t.Helper()
	store, err := New(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := holdfast.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// Clients of both packages exclude each other and wait in one queue.
func TestBothPackagesMeet(t *testing.T) {
	t.Parallel()
	for _, at := range []string{start(t).URL(), startSentinel(t).URL(), startCluster(t).URL()} {
		client, err := clientFor(at)
		if err != nil {
			t.Fatal(err)
		}
		ours := clientOf(t, client, nil)
		theirs, err := holdfast.Open(t.Context(), at, nil)
		if err != nil {
			t.Fatal(err)
		}
		lockAndWait(t, ours, theirs)
		lockAndWait(t, theirs, ours)
		if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
		if err := client.Ping(t.Context()).Err(); err != nil { // it is the user's
			t.Errorf("the client after Close: %v", err)
		}
		_ = client.Close()
	}
}

// A client with RESP2 does as well, and one that waits for replicas.
func TestOptions(t *testing.T) {
	t.Parallel()
	server := start(t)
	old := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer func() { _ = old.Close() }()
	lockAndWait(t, clientOf(t, old, nil), clientOf(t, old, nil))
	if _, err := clientOf(t, old, &Options{Wait: 1}).TryAcquire(t.Context(), t.Name(), nil); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("without a replica: %v", err)
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}})
	defer func() { _ = ring.Close() }()
	if _, err := New(ring, nil); err == nil {
		t.Error("a ring was taken")
	}
	if _, err := New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}}), nil); err == nil {
		t.Error("a server that is no cluster was taken for one")
	}
}

// The master changes; the client finds the new one.
func TestFailover(t *testing.T) {
	t.Parallel()
	r := startSentinel(t)
	client, err := clientFor(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	one, two := clientOf(t, client, nil), clientOf(t, client, nil)
	lease, err := one.Acquire(t.Context(), "held", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Failover(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for ; ; <-time.After(50 * time.Millisecond) {
		if err = lease.Check(ctx); err == nil || ctx.Err() != nil {
			break
		}
		if !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrIndeterminate) {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	lockAndWait(t, one, two)
}

// A server that is gone is unavailable; what its answer was lost to is unknown, and is
// not sent again.
func TestServerGone(t *testing.T) {
	t.Parallel()
	server := start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	locks := clientOf(t, client, nil)
	lease, err := locks.Acquire(t.Context(), "held", nil)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err = locks.TryAcquire(t.Context(), "other", nil); !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrIndeterminate) {
		t.Errorf("%v", err)
	}
	if _, err = locks.TryAcquire(t.Context(), "other", nil); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if err = lease.Release(t.Context()); err == nil {
		t.Error("released")
	}
}
