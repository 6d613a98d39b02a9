package drivertest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var exclusionCases = []Case{
	{
		ID: "G1.1", Rule: "An exclusive grant refuses every other owner, of the same client and of another, until it is released.",
		Quick: true, Func: exclusiveRefuses,
		Kills: []string{"owner is the client", "try takes a place"},
	},
	{
		ID: "G1.2", Rule: "Fifty goroutines of four clients that wait for one name are inside one at a time, and all get their turn.",
		Quick: true, Func: crowdOfWaiters,
		Kills: []string{"owner is the client", "missed wake-up", "silent hand-over"},
	},
	{
		ID: "G1.3", Rule: "Of fifty attempts at the same moment exactly one is granted.",
		Func:  crowdOfTries,
		Kills: []string{"owner is the client"},
	},
	{
		ID: "G1.4", Rule: "A grant that nobody renews is not given to another before its window is over, whenever it began.",
		Needs: NeedLease, Func: lapsesNotEarlier,
		Kills: []string{"early end", "try takes a place"},
	},
	{
		ID: "G1.5", Rule: "Readers share the name; no writer is granted beside a reader, and nobody beside a writer.",
		Needs: NeedShared, Quick: true, Func: readersAndWriter,
		Kills: []string{"reader beside writer", "try takes a place"},
	},
	{
		ID: "G1.6", Rule: "Attempts at the same moment on a semaphore never get more permits than its limit, and get all of them.",
		Needs: NeedPermits, Quick: true, Func: crowdOfPermitTries,
		Kills: []string{"one permit too many"},
	},
	{
		ID: "G1.7", Rule: "Waiters for one to three permits are never inside with more than the limit together, and all get their turn.",
		Needs: NeedPermits, Func: crowdOfPermits,
		Kills: []string{"missed wake-up", "silent hand-over"},
	},
	{
		ID: "G1.8", Rule: "Readers never see a writer's work half done.",
		Needs: NeedShared, Func: crowdOfReaders,
		Kills: []string{"reader beside writer", "missed wake-up"},
	},
	{
		ID: "G1.9", Rule: "A lease is judged by the length that its holder asked for, not by that of the one who comes next.",
		Needs: NeedLease, Func: judgedByOwnLength,
		Kills: []string{"no owner compare", "release by name", "early end", "try takes a place"},
	},
	{
		ID: "G1.10", Rule: "Unfair attempts may overtake waiters, but not a holder.",
		Func:  unfairExcludes,
		Kills: []string{"owner is the client", "try takes a place"},
	},
}

func exclusiveRefuses(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	a.refused(n, "another owner of the same client")
	b.refused(n, "another client")
	other := b.granted(t.Name()) // another name is another lock
	b.frees(other)
	a.frees(h)
	again := b.granted(n)
	a.refused(n, "the first client, after the second got the name")
	b.frees(again)
}

func crowdOfWaiters(t *T) {
	name, in := t.LockName(), &room{t: t, limit: 1}
	begin := time.Now()
	t.crowd(50, t.clients(4), func(_ int, c *holdfast.Client) {
		for range 4 {
			l := t.locks(c, name, nil)
			in.visit(1)
			t.frees(l)
		}
	})
	t.prompt(begin, "two hundred visits")
	if got := in.visits.Load(); got != 200 {
		t.Errorf("200 visits counted as %d: two were inside at once, or one came in too few", got)
	}
}

func crowdOfTries(t *T) {
	clients := t.clients(2)
	for range 5 {
		name := t.LockName()
		var won atomic.Int32
		var begin sync.WaitGroup
		begin.Add(50)
		leases := make([]*holdfast.Lease, 50)
		t.crowd(50, clients, func(i int, c *holdfast.Client) {
			begin.Done()
			begin.Wait()
			if l, err := c.TryAcquire(t.ctx, name, nil); err == nil {
				leases[i] = l
				won.Add(1)
			} else {
				t.is(err, holdfast.ErrHeld, "refused attempt")
			}
		})
		if n := won.Load(); n != 1 {
			t.Fatalf("%d attempts of 50 were granted", n)
		}
		for _, l := range leases {
			if l != nil {
				t.frees(l)
			}
		}
	}
}

func lapsesNotEarlier(t *T) {
	a, b := t.peers()
	for i := range 4 {
		t.pause(time.Duration(i) * 137 * time.Millisecond) // another offset within the second
		n := t.Name()
		h := a.granted(n, lasting(t.TTL()))
		t.notBefore(h, b.obtains(n), t.TTL())
	}
}

// notBefore asserts that the next grant came no sooner than the window after
// the one before was asked for. The clocks of two machines may differ a bit.
func (t *T) notBefore(h, next hold, window time.Duration) {
	if gap := next.got.Sub(h.sent); gap < window-window/100 {
		t.Errorf("granted again %v after the request, its window was %v", gap, window)
	}
}

func readersAndWriter(t *T) {
	a, b := t.peers()
	n := t.Name()
	r1, r2, r3 := a.granted(n, shared), b.granted(n, shared), a.granted(n, shared)
	b.refused(n, "a writer beside three readers")
	b.frees(r2)
	b.refused(n, "a writer beside two readers")
	a.frees(r1)
	a.refused(n, "a writer beside one reader")
	a.frees(r3)
	w := b.granted(n)
	a.refused(n, "a reader beside a writer", shared)
	b.refused(n, "a reader of the writer's client", shared)
	a.refused(n, "a writer beside a writer")
	b.frees(w)
	a.frees(a.granted(n, shared))
}

func crowdOfPermitTries(t *T) {
	const limit = 3
	clients := t.clients(2)
	for range 5 {
		name := t.LockName()
		var won atomic.Int32
		var begin sync.WaitGroup
		begin.Add(20)
		t.crowd(20, clients, func(_ int, c *holdfast.Client) {
			begin.Done()
			begin.Wait()
			if _, err := c.TryAcquire(t.ctx, name, &holdfast.AcquireOptions{Permits: 1, Limit: limit}); err == nil {
				won.Add(1)
			} else {
				t.is(err, holdfast.ErrHeld, "refused attempt")
			}
		})
		if n := won.Load(); n != limit {
			t.Fatalf("%d attempts of 20 got a permit, limit %d", n, limit)
		}
	}
}

func crowdOfPermits(t *T) {
	const limit = 3
	name, in := t.LockName(), &room{t: t, limit: limit}
	begin := time.Now()
	t.crowd(30, t.clients(3), func(i int, c *holdfast.Client) {
		for k := range 3 {
			n := (i+k)%limit + 1
			l := t.locks(c, name, &holdfast.AcquireOptions{Permits: n, Limit: limit})
			in.visit(int64(n))
			t.frees(l)
		}
	})
	t.prompt(begin, "ninety visits")
	if got := in.visits.Load(); got != 90 {
		t.Errorf("%d visits, want 90", got)
	}
}

func crowdOfReaders(t *T) {
	var left, right atomic.Int64 // equal, but for the moment of a write
	name := t.LockName()
	t.crowd(20, t.clients(3), func(i int, c *holdfast.Client) {
		for k := range 4 {
			if (i+k)%4 == 0 {
				l := t.locks(c, name, nil)
				left.Add(1)
				t.pause(50 * time.Microsecond)
				right.Add(1)
				t.frees(l)
				continue
			}
			l := t.locks(c, name, &holdfast.AcquireOptions{Mode: holdfast.Shared})
			if a, b := left.Load(), right.Load(); a != b {
				t.Errorf("a reader saw %d and %d", a, b)
			}
			t.frees(l)
		}
	})
	if got := left.Load(); got != 20 {
		t.Errorf("%d writes, want 20", got)
	}
}

func judgedByOwnLength(t *T) {
	a, b := t.peers()
	n, m := t.Name(), t.Name()
	short, long := t.TTL(), 3*t.TTL()
	first := a.granted(n, lasting(long))
	second := b.granted(m, lasting(short))
	// The one with the long TTL gets the short lease soon…
	next := a.obtains(m, lasting(10*long))
	t.notBefore(second, next, short)
	// …and the one with the short TTL waits for the long one.
	t.notBefore(first, b.obtains(n, lasting(short)), long)
	if b.released(driver.Ref{Name: m, Owner: second.Owner, Mode: second.Mode, Token: second.Token}) {
		t.Errorf("a lapsed grant was released after the name was another's")
	}
}

func unfairExcludes(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, unfair)
	b.refused(n, "an unfair attempt beside a holder", unfair)
	a.refused(n, "an unfair attempt of the holder's client", unfair)
	a.frees(h)
	b.frees(b.granted(n, unfair))
}
