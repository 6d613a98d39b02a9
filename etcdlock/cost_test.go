package etcdlock

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/etcdtest"
)

var messages = regexp.MustCompile(`(?m)^grpc_server_msg_(received|sent)_total\{grpc_method="(\w+)",grpc_service="etcdserverpb\.\w+",.*\} (\S+)$`)

// traffic is how many messages of each method the server has taken, and how many
// it has sent to watchers.
func traffic(tb testing.TB, n *etcdtest.Node) map[string]int {
	tb.Helper()
	text, err := n.Get("/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	counts := map[string]int{}
	for _, m := range messages.FindAllStringSubmatch(text, -1) {
		count, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			tb.Fatal(err)
		}
		switch {
		case m[1] == "received":
			counts[m[2]] = int(count)
		case m[2] == "Watch":
			counts["to watchers"] = int(count)
		}
	}
	return counts
}

// costs tells what f made the server do.
func costs(tb testing.TB, n *etcdtest.Node, f func()) map[string]int {
	tb.Helper()
	before := traffic(tb, n)
	f()
	after := traffic(tb, n)
	for method, count := range after {
		if after[method] = count - before[method]; after[method] == 0 {
			delete(after, method)
		}
	}
	return after
}

// costSoon is costs for what the client does in the background: the figures are
// read until they are those that are wanted, or for long enough. Keep-alives do not
// count: a machine that is slow needs one more.
func costSoon(tb testing.TB, n *etcdtest.Node, what string, f func(), wants ...map[string]int) {
	tb.Helper()
	before := traffic(tb, n)
	f()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var got map[string]int
	for end := time.Now().Add(patience / 3); time.Now().Before(end); <-tick.C {
		got = traffic(tb, n)
		delete(got, "LeaseKeepAlive")
		for method, count := range got {
			if got[method] = count - before[method]; got[method] == 0 {
				delete(got, method)
			}
		}
		if slices.ContainsFunc(wants, func(want map[string]int) bool { return maps.Equal(got, want) }) {
			return
		}
	}
	tb.Errorf("%s: %v, want %v", what, got, wants)
}

func expect(tb testing.TB, what string, got, want map[string]int) {
	tb.Helper()
	if !maps.Equal(got, want) {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

// quiet waits until a client's watches stand and it looks at nothing.
func quiet(tb testing.TB, stores ...*store) {
	tb.Helper()
	for _, s := range stores {
		until(tb, "all watches stand", func() bool {
			s.book.mu.Lock()
			defer s.book.mu.Unlock()
			for _, e := range s.book.entries {
				if e.looking || e.own != nil && !e.live() {
					return false
				}
			}
			return len(s.ears.out) == 0
		})
	}
}

// Uncontended, acquire and release are one transaction each, through the whole
// client.
func TestCostOfPair(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	locks, err := holdfast.New(server.open(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	got := costs(t, server.Nodes[0], func() {
		lease, err := locks.Acquire(t.Context(), "pair", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	expect(t, "a pair", got, map[string]int{"Txn": 2})
}

// A batch is one transaction, and so is a refused attempt.
func TestCostOfBatchAndTry(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	var reqs []*driver.AcquireRequest
	for i := range maxBatch {
		reqs = append(reqs, request(fmt.Sprintf("%s/%d", t.Name(), i)))
	}
	hold(t, s, t.Name()) // has the lease made
	hold(t, other, t.Name()+"/0")
	var ends []*driver.ReleaseRequest
	got := costs(t, server.Nodes[0], func() {
		for i, answer := range s.AcquireMany(t.Context(), reqs) {
			if want := map[bool]driver.Status{true: driver.Held, false: driver.Granted}[i == 0]; answer.Err != nil || answer.Status != want {
				t.Fatalf("%d: %+v", i, answer)
			}
			if answer.Status == driver.Held {
				continue
			}
			ends = append(ends, &driver.ReleaseRequest{Ref: driver.Ref{Name: reqs[i].Name, Owner: reqs[i].Owner, Mode: reqs[i].Mode, Token: answer.Grant.Token}})
		}
	})
	expect(t, "many acquires", got, map[string]int{"Txn": 1})
	got = costs(t, server.Nodes[0], func() {
		for i, answer := range s.ReleaseMany(t.Context(), ends) {
			if answer.Err != nil || !answer.Released {
				t.Fatalf("%d: %+v", i, answer)
			}
		}
	})
	expect(t, "many releases", got, map[string]int{"Txn": 1})
	mine, taken := hold(t, s, t.Name()+"/mixed"), request(t.Name()+"/0")
	got = costs(t, server.Nodes[0], func() {
		acquired, released := s.Mix(t.Context(), []*driver.AcquireRequest{taken, request(t.Name() + "/1")}, []*driver.ReleaseRequest{{Ref: mine}})
		if acquired[0].Status != driver.Held || acquired[1].Status != driver.Granted || !released[0].Released {
			t.Errorf("%+v, %+v", acquired, released)
		}
	})
	expect(t, "attempts and a release", got, map[string]int{"Txn": 1})
	got = costs(t, server.Nodes[0], func() {
		if _, status := try(t, other, t.Name()); status != driver.Held {
			t.Errorf("status %d", status)
		}
	})
	expect(t, "a refused attempt", got, map[string]int{"Txn": 1})
}

// A hand-over is the release's transaction, and one event each for the next
// waiter, who needs nothing more, and for the one behind it, who looks whether it
// is the next. That is so whether two wait or many.
func TestCostOfHandOver(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{3, 200} {
		server := ownServer(t)
		s, other := server.open(t), server.open(t)
		var h heard
		h.listen(other)
		ref := hold(t, s, t.Name())
		places := make([]driver.Ref, waiters)
		for i := range places {
			places[i] = enqueue(t, other, t.Name())
		}
		quiet(t, other)
		next := func(i int, release func()) {
			release()
			until(t, "the next is told", func() bool { return h.has(driver.GrantSignal, places[i].Owner) })
			quiet(t, other)
		}
		// The second one knew both before it.
		costSoon(t, server.Nodes[0], fmt.Sprintf("the first hand-over with %d waiters", waiters), func() { next(0, func() { free(t, s, ref) }) },
			map[string]int{"Txn": 1, "Watch": 2, "to watchers": 4})
		sig, _ := h.grant(places[0].Owner)
		places[0].Token = sig.Grant.Token
		// Cancelled are the watches of: the holder's own key; its key for the next; and for the one behind.
		costSoon(t, server.Nodes[0], fmt.Sprintf("a hand-over with %d waiters", waiters), func() { next(1, func() { free(t, other, places[0]) }) },
			map[string]int{"Txn": 2, "Watch": 3, "to watchers": 5},
			map[string]int{"Txn": 2, "Watch": 3, "to watchers": 6}) // the release came before the end of the holder's own watch
	}
}

// A place behind others costs one transaction and three watches.
func TestCostOfPlace(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	hold(t, s, t.Name())
	place := func() {
		enqueue(t, other, t.Name())
		quiet(t, other)
	}
	// One lease is for a TTL that nobody had yet.
	costSoon(t, server.Nodes[0], "a client's first place", place, map[string]int{"Txn": 2, "LeaseGrant": 2, "Watch": 2, "to watchers": 2})
	place()
	costSoon(t, server.Nodes[0], "a place", place, map[string]int{"Txn": 1, "Watch": 3, "to watchers": 3})
}

// holdMany takes many names, and makes the requests that renew them.
func holdMany(tb testing.TB, s *store, many int) (reqs []driver.RenewRequest) {
	tb.Helper()
	for from := 0; from < many; from += maxBatch {
		var batch []*driver.AcquireRequest
		for i := from; i < min(many, from+maxBatch); i++ {
			batch = append(batch, request(fmt.Sprintf("%s/%d", tb.Name(), i)))
		}
		for i, answer := range s.AcquireMany(tb.Context(), batch) {
			if answer.Err != nil || answer.Status != driver.Granted {
				tb.Fatalf("%+v", answer)
			}
			ref := driver.Ref{Name: batch[i].Name, Owner: batch[i].Owner, Mode: batch[i].Mode, Token: answer.Grant.Token}
			reqs = append(reqs, driver.RenewRequest{Ref: ref, TTL: batch[i].TTL})
		}
	}
	return reqs
}

// However many are held or wait, their renewals and beats are one keep-alive for
// each lease, once watches stand.
func TestCostOfRenewalsAndBeats(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	reqs := holdMany(t, s, 10_000)
	all := func() {
		for part := range slices.Chunk(reqs, maxBatch) {
			for _, res := range s.Renew(t.Context(), part) {
				if res.Err != nil || res.Status != driver.Renewed {
					t.Fatalf("renewal: %+v", res)
				}
			}
		}
	}
	all() // asks, and begins the watches
	until(t, "all watches stand", func() bool {
		s.book.mu.Lock()
		defer s.book.mu.Unlock()
		for _, e := range s.book.entries {
			if e.own == nil || e.own.since == 0 {
				return false
			}
		}
		return true
	})
	all() // asks what happened before they did
	got := costs(t, server.Nodes[0], all)
	if got["LeaseKeepAlive"] > 2 { // a slow machine takes longer than a hundredth of the TTL for all
		t.Errorf("%d keep-alives", got["LeaseKeepAlive"])
	}
	delete(got, "LeaseKeepAlive")
	expect(t, "renewals", got, map[string]int{})

	other := server.open(t)
	var places []driver.Ref
	for i := range maxBatch {
		places = append(places, enqueue(t, other, strings.Clone(reqs[i].Name.Full)))
	}
	quiet(t, other)
	got = costs(t, server.Nodes[0], func() {
		for _, res := range other.Beat(t.Context(), places) {
			if res.Err != nil || res.Status != driver.Waiting {
				t.Fatalf("beat: %+v", res)
			}
		}
	})
	if got["LeaseKeepAlive"] > 1 {
		t.Errorf("%d keep-alives", got["LeaseKeepAlive"])
	}
	delete(got, "LeaseKeepAlive")
	expect(t, "beats", got, map[string]int{})
}

// A free name leaves nothing behind.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other, api := server.open(t), server.open(t), server.api(t)
	ref := hold(t, s, t.Name())
	place := enqueue(t, other, t.Name())
	free(t, s, ref)
	free(t, other, place)
	semaphore := request(t.Name())
	semaphore.Mode, semaphore.N, semaphore.Limit = driver.Permits, 2, 3
	permits, _ := ask(t, s, semaphore)
	free(t, s, permits)
	answer, err := api.Get(t.Context(), "\x00", fromKey...)
	if err != nil || answer.Count != 0 {
		t.Errorf("%d keys stay: %v, %v", answer.Count, answer.Kvs, err)
	}
	until(t, "no watcher stays", func() bool {
		text, err := server.Nodes[0].Get("/metrics")
		return err == nil && strings.Contains(text, "\netcd_debugging_mvcc_watcher_total 0\n")
	})
}

// Abandons that are repeated do not hold up those who travel with them: all are
// looked for at once.
func TestCostOfAbandonsAgain(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	abandon := func(i int) *driver.ReleaseRequest {
		req := request(fmt.Sprintf("%s/%d", t.Name(), i))
		return &driver.ReleaseRequest{Ref: driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}, Abandon: true}
	}
	free(t, s, hold(t, s, t.Name())) // has the lease made
	if ok, err := s.Release(t.Context(), abandon(0)); ok || err != nil {
		t.Fatalf("%t, %v", ok, err) // has that of tombstones made
	}
	var ends []*driver.ReleaseRequest
	for i := range maxBatch - 1 {
		ends = append(ends, abandon(i))
	}
	got := costs(t, server.Nodes[0], func() {
		acquired, released := s.Mix(t.Context(), []*driver.AcquireRequest{request(t.Name())}, ends)
		if acquired[0].Status != driver.Granted {
			t.Errorf("%+v", acquired)
		}
		for _, a := range released {
			if a.Released || a.Err != nil {
				t.Errorf("%+v", a)
			}
		}
	})
	expect(t, "an attempt with abandons", got, map[string]int{"Txn": 2})
	late := request("")
	late.Name, late.Owner = ends[7].Name, ends[7].Owner
	if _, status := ask(t, s, late); status != driver.Gone {
		t.Errorf("an attempt that was abandoned before: status %d", status)
	}
}
