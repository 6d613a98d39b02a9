package redislock

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// commands tells how often the server ran each command, from within scripts too,
// while f ran. An evalsha is one round trip.
func commands(tb testing.TB, c rueidis.Client, f func()) map[string]int {
	tb.Helper()
	ctx := tb.Context()
	if err := c.Do(ctx, c.B().ConfigResetstat().Build()).Error(); err != nil {
		tb.Fatal(err)
	}
	f()
	text, err := c.Do(ctx, c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		tb.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		calls := 0
		if _, err := fmt.Sscanf(stats, "%d", &calls); !ok || err != nil {
			continue
		}
		switch name {
		case "info", "ping", "config|resetstat", "config", "hello", "client|setinfo", "client":
			// Ours, and what the client does for each connection.
		default:
			counts[name] = calls
		}
	}
	return counts
}

func expect(tb testing.TB, what string, got, want map[string]int) {
	tb.Helper()
	if !maps.Equal(got, want) {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

// trips counts what a Link sends in one flush.
type trips struct {
	*directLink
	n atomic.Int64
}

func (l *trips) Do(ctx context.Context, commands ...Command) []Reply {
	l.n.Add(1)
	return l.directLink.Do(ctx, commands...)
}

// Uncontended, acquire and release are one round trip each, through the whole
// client. The first acquire of a bucket is a script call, the others are two native
// commands.
func TestCostOfPair(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	link := &trips{directLink: s.link.(*directLink)} //nolint:errcheck // it is one
	s.link = link
	locks, err := holdfast.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	c := server.client(t)
	for _, want := range []map[string]int{
		{"evalsha": 2, "mget": 1, "get": 2, "time": 1, "set": 2, "del": 1},
		{"evalsha": 1, "get": 1, "set": 1, "incr": 1, "del": 1},
	} {
		before := link.n.Load()
		got := commands(t, c, func() {
			lease, err := locks.Acquire(t.Context(), "pair", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		expect(t, "a pair", got, want)
		if n := link.n.Load() - before; n != 2 {
			t.Errorf("a pair is %d round trips", n)
		}
	}
}

// A bare attempt at a name in use is made again by the script, once: then the
// script is asked at first.
func TestCostOfBareTry(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other, c := server.open(t), server.open(t), server.client(t)
	bareTry := func(s *store) (driver.Ref, driver.Status) {
		req := request(t.Name())
		req.Bare = true
		return ask(t, s, req)
	}
	free(t, other, hold(t, other, t.Name())) // other makes tokens of its own now
	held := hold(t, s, t.Name())
	for _, want := range []map[string]int{
		{"set": 1, "incr": 1, "evalsha": 1, "mget": 1, "get": 1, "exists": 1, "time": 1, "pttl": 1},
		{"evalsha": 1, "mget": 1, "get": 1, "exists": 1, "time": 1, "pttl": 1},
	} {
		expect(t, "a try", commands(t, c, func() {
			if _, status := bareTry(other); status != driver.Held {
				t.Errorf("status %d", status)
			}
		}), want)
	}
	free(t, s, held)
}

// A refused attempt is one round trip and writes nothing.
func TestCostOfTry(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	ref := hold(t, s, t.Name())
	got := commands(t, server.client(t), func() {
		if _, status := try(t, other, t.Name()); status != driver.Held {
			t.Errorf("status %d", status)
		}
	})
	expect(t, "a refused attempt", got, map[string]int{"evalsha": 1, "mget": 1, "get": 1, "exists": 1, "time": 1, "pttl": 1})
	free(t, s, ref)
}

// A hand-over is one script call and one message, whether one waits or many.
func TestCostOfHandOver(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{2, 200} {
		server := ownServer(t)
		s, other := server.open(t), server.open(t)
		ref := hold(t, s, t.Name())
		for range waiters {
			enqueue(t, other, t.Name())
		}
		got := commands(t, server.client(t), func() { free(t, s, ref) })
		expect(t, fmt.Sprintf("a hand-over with %d waiters", waiters), got,
			map[string]int{"evalsha": 1, "get": 1, "time": 1, "lpop": 1, "hdel": 1, "set": 2, "publish": 1})
	}
}

// So is to line up behind others.
func TestCostOfPlace(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	hold(t, s, t.Name())
	enqueue(t, other, t.Name())
	got := commands(t, server.client(t), func() { enqueue(t, other, t.Name()) })
	expect(t, "a place", got, map[string]int{"evalsha": 1, "mget": 1, "time": 1, "rpush": 1, "hsetnx": 1})
}

// A beat of many places is one script call.
func TestCostOfBeat(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	var places []driver.Ref
	for i := range maxBatch {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		hold(t, s, name)
		places = append(places, enqueue(t, other, name))
	}
	got := commands(t, server.client(t), func() {
		for _, res := range other.Beat(t.Context(), places) {
			if res.Status != driver.Waiting {
				t.Fatalf("beat: %+v", res)
			}
		}
	})
	n := maxBatch // each reads its record, how many wait, and its number
	expect(t, "beats", got, map[string]int{"evalsha": 1, "time": 1, "get": n, "hlen": n, "hget": n, "hset": n})
}

// A batch of renewals is one script call.
func TestCostOfRenewal(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	var reqs []driver.RenewRequest
	for i := range maxBatch {
		ref := hold(t, s, fmt.Sprintf("%s/%d", t.Name(), i))
		reqs = append(reqs, driver.RenewRequest{Ref: ref, TTL: request("").TTL})
	}
	got := commands(t, server.client(t), func() {
		for _, res := range s.Renew(t.Context(), reqs) {
			if res.Status != driver.Renewed {
				t.Fatalf("renewal: %+v", res)
			}
		}
	})
	delete(got, "pexpire") // not for those that run as long, to the millisecond
	expect(t, "renewals", got, map[string]int{"evalsha": 1, "get": maxBatch, "pttl": maxBatch})
}

// An uncontended hold is one small record, and a free name is nothing; what stays
// is a counter of the bucket.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other, c := server.open(t), server.open(t), server.client(t)
	keys := func() (found []string) {
		all, err := c.Do(t.Context(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range all {
			if !strings.HasPrefix(key, "hft:") {
				found = append(found, key)
			}
		}
		return found
	}
	ref := hold(t, s, t.Name())
	if held := keys(); len(held) != 1 {
		t.Fatalf("an uncontended hold is %v", held)
	} else if text, err := c.Do(t.Context(), c.B().Get().Key(held[0]).Build()).ToString(); err != nil || len(text) > 128 {
		t.Errorf("the record has %d bytes: %q, %v", len(text), text, err)
	}
	place := enqueue(t, other, t.Name())
	free(t, s, ref)
	free(t, other, place)
	shared := request(t.Name())
	shared.Mode = driver.Shared
	reader, _ := ask(t, s, shared)
	enqueue(t, other, t.Name())
	free(t, s, reader)
	if ok, err := other.Release(t.Context(), &driver.ReleaseRequest{Ref: enqueue(t, other, t.Name())}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r, err := s.Inspect(t.Context(), nameOf(t.Name()))
	if err != nil || len(r.Holders) != 1 || len(r.Waiters) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	free(t, other, driver.Ref{Name: nameOf(t.Name()), Owner: r.Holders[0].Owner})
	if left := keys(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
