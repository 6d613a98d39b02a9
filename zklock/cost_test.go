package zklock

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func expect(tb testing.TB, what string, got, want map[string]int) {
	tb.Helper()
	if !maps.Equal(got, want) {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Uncontended, acquire and release are one exchange each, through the whole
// client, with no more requests than the bare nodes cost; for a name that this
// client has not met lately the first exchange carries three requests more.
func TestCostOfPair(t *testing.T) {
	t.Parallel()
	p := newProxy(t, sharedServer(t))
	c := openAt(t, p.url(), testTTL)
	c.free(t, c.hold(t, "root")) // makes the root
	locks, err := holdfast.New(c.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	pair := func() {
		lease, err := locks.Acquire(t.Context(), t.Name(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "the first pair", p.requests(pair), map[string]int{"createContainer": 1, "create": 1, "getChildren": 1, "getData": 1, "delete": 1})
	expect(t, "a pair", p.requests(pair), map[string]int{"create": 1, "delete": 1})
}

// A refused attempt makes a node and deletes it.
func TestCostOfTry(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	c, other := server.open(t), openAt(t, p.url(), testTTL)
	other.free(t, other.hold(t, t.Name()))
	ref := c.hold(t, t.Name())
	got := p.requests(func() {
		if _, status := other.try(t, t.Name()); status != driver.Held {
			t.Errorf("status %d", status)
		}
	})
	expect(t, "a refused attempt", got, map[string]int{"create": 1, "getChildren": 1, "delete": 1})
	c.free(t, ref)
}

// A hand-over is one request: the next one's client looks at nothing, and nobody
// else is woken. It is the same however many wait.
func TestCostOfHandOver(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	for _, waiters := range []int{1, 2, 200} {
		p, q, r := newProxy(t, server), newProxy(t, server), newProxy(t, server)
		holder, next, rest := openAt(t, p.url(), testTTL), openAt(t, q.url(), testTTL), openAt(t, r.url(), testTTL)
		name := fmt.Sprintf("%s%d", t.Name(), waiters)
		ref := holder.hold(t, name)
		place := next.enqueue(t, name)
		last := holder.enqueue(t, name)
		proxies := map[*client]*proxy{holder: p, next: q}
		for range waiters - 1 {
			rest.enqueue(t, name)
		}
		for _, c := range []*client{holder, next, rest} {
			until(t, "all watches are set", c.asleep)
		}
		handOver := func(what string, from, to *client, ref, place driver.Ref, end string) (won driver.Ref) {
			var granted, others map[string]int
			released := proxies[from].requests(func() {
				granted = proxies[to].requests(func() {
					others = r.requests(func() {
						from.free(t, ref)
						won = to.told(t, place)
					})
				})
			})
			expect(t, what+", the release", released, map[string]int{end: 1})
			delete(granted, "getData") // of a hold that lasts
			expect(t, what+", the grant", granted, map[string]int{})
			expect(t, what+", the rest", others, map[string]int{})
			return won
		}
		first := handOver("from one who did not know", holder, next, ref, place, "delete")
		handOver("from one who waited", next, holder, first, last, "multi")
	}
}

// To line up is one exchange, and one to set the watches.
func TestCostOfPlace(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	c, other := server.open(t), openAt(t, p.url(), testTTL)
	other.free(t, other.hold(t, t.Name()))
	c.hold(t, t.Name())
	got := p.requests(func() {
		other.enqueue(t, t.Name())
		until(t, "its watches are set", other.asleep)
	})
	expect(t, "a place", got, map[string]int{"create": 1, "getChildren": 2, "getData": 1})
}

// A renewal of many leases is one request, once they are watched; so is the beat
// of a place.
func TestCostOfRenewal(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	c, other := openAt(t, p.url(), testTTL), server.open(t)
	var reqs []driver.RenewRequest
	for i := range 100 {
		ref := c.hold(t, fmt.Sprintf("%s%d", t.Name(), i))
		reqs = append(reqs, driver.RenewRequest{Ref: ref, TTL: testTTL})
	}
	until(t, "all are watched", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range c.nodes {
			if !n.guarded {
				return false
			}
		}
		return true
	})
	got := p.requests(func() {
		for _, res := range c.Renew(t.Context(), reqs) {
			if res.Status != driver.Renewed {
				t.Fatalf("renewal: %+v", res)
			}
		}
	})
	expect(t, "renewals", got, map[string]int{"delete": 1})
	other.hold(t, t.Name())
	place := c.enqueue(t, t.Name())
	until(t, "its watches are set", c.asleep)
	got = p.requests(func() {
		if res := c.Beat(t.Context(), []driver.Ref{place}); res[0].Status != driver.Waiting {
			t.Errorf("beat: %+v", res)
		}
	})
	expect(t, "a beat", got, map[string]int{"exists": 1})
}

// A short hold is never watched, a long one once.
func TestCostOfGuard(t *testing.T) {
	t.Parallel()
	p := newProxy(t, sharedServer(t))
	c := openAt(t, p.url(), testTTL)
	c.free(t, c.hold(t, t.Name()))
	var ref driver.Ref
	got := p.requests(func() {
		ref = c.hold(t, t.Name())
		until(t, "it is watched", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.nodes[ref.Owner].guarded
		})
		<-time.After(2 * youth)
	})
	expect(t, "a long hold", got, map[string]int{"create": 1, "getData": 1})
	c.free(t, ref)
}

// Nothing stays of a name but its node, which the server deletes.
func TestNothingStays(t *testing.T) { // report B064
	t.Parallel()
	server := ownServer(t, "-Dznode.container.checkIntervalMs=200", "-Dznode.container.maxPerMinute=1000000") // its own bound is 10,000
	c := server.open(t)
	names := 300
	if full() {
		names = 20000
	}
	for i := range names {
		c.free(t, c.hold(t, fmt.Sprintf("%s%d", t.Name(), i)))
	}
	until(t, "the names' nodes are gone", func() bool { return server.Counter("zk_znode_count") < 20 })
	c.free(t, c.hold(t, t.Name()+"0"))
}

// asleep tells whether all places of the client have their watches set.
func (c *client) asleep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.state == waiting && !n.asleep {
			return false
		}
	}
	return true
}
