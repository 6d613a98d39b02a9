package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var cancelCases = []Case{
	{
		ID: "W2.1", Rule: "Waits that are cancelled at any moment leave neither place nor grant, also when the name is freed just then.",
		Func:  cancelAtAnyMoment,
		Kills: []string{"missed wake-up", "silent hand-over"},
	},
	{
		ID: "W2.2", Rule: "A hundred waiters that gave up are in nobody's way when the holder releases.",
		Quick: true, Func: allGiveUp,
		Kills: []string{"abandoned grant stays", "try takes a place"},
	},
	{
		ID: "W2.3", Rule: "A place that was abandoned is never granted, and the next waiter is told at once.",
		Needs: NeedQueue, Quick: true, Func: abandonedPlace,
		Kills: []string{"owner is the client", "late grant accepted", "ghost waiter", "missed wake-up", "silent hand-over", "no moving on"},
	},
	{
		ID: "W2.4", Rule: "Abandoning a place while the holder releases it leaves the name to the next, whichever comes first.",
		Needs: NeedQueue, Func: abandonAgainstRelease,
		Kills: []string{"abandoned grant stays", "ghost waiter", "no moving on"},
	},
	{
		ID: "W2.5", Rule: "An acquire that hangs in the store returns when its context ends, and what arrives later holds nothing.",
		Func:  cancelOvertakes,
		Kills: []string{"late grant accepted"},
	},
	{
		ID: "W2.6", Rule: "A wait in the store that was cancelled returns, and leaves no grant behind.",
		Needs: NeedBlock, Func: cancelledBlock,
	},
	{
		ID: "W2.7", Rule: "A cancel is told apart from a bound that ran out.",
		Func: cancelIsNoTimeout, About: AboutClient,
	},
}

func cancelAtAnyMoment(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	for range 60 {
		l := t.locks(a, name, nil)
		ctx, cancel := context.WithCancel(t.ctx)
		w := t.waiting(ctx, b, name, nil)
		t.pause(rand.N(2 * time.Millisecond))
		freed := t.Go(func() { t.frees(l) })
		t.pause(rand.N(time.Millisecond))
		cancel()
		t.await(w.done, "a cancelled wait")
		t.await(freed, "a release")
		if w.err == nil {
			t.frees(w.lease)
		} else {
			t.is(w.err, context.Canceled, "a cancelled wait")
		}
		// Far sooner than a ghost's place or grant would lapse.
		ctx, cancel = context.WithTimeout(t.ctx, liveness)
		begin := time.Now()
		l, err := c.Acquire(ctx, name, nil)
		t.prompt(begin, "the next acquire")
		cancel()
		if err != nil {
			t.Fatalf("after a cancelled wait: %v", err)
		}
		t.frees(l)
	}
}

func allGiveUp(t *T) {
	a, c := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	t.crowd(100, t.clients(4), func(i int, b *holdfast.Client) {
		_, err := b.Acquire(t.ctx, name, &holdfast.AcquireOptions{Wait: time.Duration(5+i%7) * time.Millisecond})
		t.is(err, holdfast.ErrTimeout, "a wait that ran out")
	})
	t.frees(l)
	begin := time.Now()
	t.frees(t.opens(c, name, nil))
	t.prompt(begin, "the next acquire") // what is left behind is undone at once
}

func abandonedPlace(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	first, second := b.place(n), a.place(n)
	if !b.abandoned(first) {
		t.Errorf("abandoning a place answered false")
	}
	if res := b.beats(first); res.Status != driver.Gone {
		t.Errorf("beat of an abandoned place: status %d, want gone", res.Status)
	}
	// A copy of the request arrives late. Not every store can refuse it; the next
	// abandon ends it there.
	if _, res := b.ask(n, queued, as(first.Owner)); res.Status != driver.Gone {
		if refuses := t.h.has(b.Store)&NeedRefusal != 0; refuses || res.Status != driver.Waiting {
			t.Errorf("an abandoned owner queues again: status %d, want gone", res.Status)
		}
		if !b.abandoned(first) {
			t.Errorf("abandoning a place that was taken late answered false")
		}
		if res := b.beats(first); res.Status != driver.Gone {
			t.Errorf("beat of a place that was abandoned twice: status %d, want gone", res.Status)
		}
	}
	a.frees(h)
	a.frees(a.told(second))
	if s := b.grantSignals(first.Owner); len(s) != 0 {
		t.Errorf("an abandoned place was granted")
	}
	b.frees(b.granted(n))
}

func abandonAgainstRelease(t *T) {
	a, b := t.peers()
	n := t.Name()
	for i := range 30 {
		h := a.granted(n)
		place := b.place(n)
		both := []func(){func() { a.frees(h) }, func() { b.abandoned(place) }}
		if i%3 == 2 { // at once
			freed, gone := t.Go(both[0]), t.Go(both[1])
			t.await(freed, "a release")
			t.await(gone, "an abandon")
		} else {
			both[i%3]()
			both[1-i%3]()
		}
		b.frees(b.granted(n)) // at once: nothing has to lapse first
		if res := b.beats(place); res.Status != driver.Gone {
			t.Errorf("beat of an abandoned place: status %d, want gone", res.Status)
		}
	}
}

func cancelOvertakes(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	bad.all(late, opAcquire)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	w := t.waiting(ctx, a, name, &holdfast.AcquireOptions{TTL: t.Long()})
	t.eventually("the request", func() bool { return bad.count(opAcquire) > 0 })
	cancel()
	t.await(w.done, "a cancelled acquire")
	if w.err == nil {
		t.Fatalf("granted without an answer")
	}
	t.is(w.err, context.Canceled, "a cancelled acquire")
	t.eventually("the abandon", func() bool { return bad.count(opRelease) > 0 })
	t.pause(t.TTL() / 10)
	bad.heal() // now the acquire arrives
	t.pause(t.TTL() / 10)
	begin := time.Now()
	t.frees(t.opens(b, name, nil)) // long before its TTL is over
	if t.h.has(b.Store())&NeedRefusal != 0 {
		t.prompt(begin, "the next acquire") // elsewhere the repeated abandon ends it
	}
}

func cancelledBlock(t *T) {
	a, b := t.peers()
	n := t.Name()
	parks := blocker(t, b.Store)
	for i := range 10 {
		h := a.granted(n)
		ctx, cancel := context.WithCancel(t.ctx)
		r := b.request(n, nil)
		var g driver.Grant
		var err error
		blocked := t.Go(func() { g, err = parks.Block(ctx, r) })
		t.pause(time.Duration(i) * time.Millisecond)
		if i%2 == 0 {
			cancel()
			t.await(blocked, "a cancelled Block")
			a.frees(h)
		} else {
			a.frees(h)
			cancel()
			t.await(blocked, "a cancelled Block")
		}
		if err == nil {
			b.frees(b.holdOf(refTo(r), g))
		} else {
			if kind := b.Classify(err); kind != driver.Canceled && kind != driver.Indeterminate {
				t.Errorf("a cancelled Block: %v is %v", err, kind)
			}
			b.abandoned(refTo(r)) // ends what was parked, and a grant that came late
		}
		a.frees(a.obtains(n))
	}
}

func cancelIsNoTimeout(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	ctx, cancel := context.WithCancel(t.ctx)
	w := t.waiting(ctx, b, name, &holdfast.AcquireOptions{Wait: time.Hour})
	t.pause(t.TTL() / 10)
	cancel()
	t.await(w.done, "a cancelled wait")
	t.is(w.err, context.Canceled, "a cancelled wait")
	if errors.Is(w.err, holdfast.ErrTimeout) || errors.Is(w.err, context.DeadlineExceeded) {
		t.Errorf("a cancel is called a timeout: %v", w.err)
	}
	t.frees(l)
}
