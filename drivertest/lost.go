package drivertest

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var lostCases = []Case{
	{
		ID: "L1.1", Rule: "When the store is down, the lease's context ends with ErrLost before the store grants the name to another.",
		Needs: NeedLease, Quick: true, Func: func(t *T) { lostBeforeNext(t, down) },
		Kills: []string{"deadline from the reply", "early end", "no moving on"},
	},
	{
		ID: "L1.2", Rule: "When renewals hang without an answer, the lease's context ends with ErrLost before the store grants the name to another.",
		Needs: NeedLease, Func: func(t *T) { lostBeforeNext(t, hangs) },
		Kills: []string{"deadline from the reply", "early end", "no moving on"},
	},
	{
		ID: "L1.3", Rule: "A lease that is not renewed ends by itself with ErrLost.",
		Needs: NeedLease, Func: endsByItself, About: AboutClient,
	},
	{
		ID: "L1.4", Rule: "After a loss every call on the lease says so, and the same client can acquire the name again.",
		Needs: NeedLease, Func: afterLoss, About: AboutClient,
	},
	{
		ID: "L1.5", Rule: "The store's own loss signal ends the lease at once, and only the lease that it names.",
		Needs: NeedQueue, Func: lossSignal, About: AboutClient,
	},
	{
		ID: "L1.6", Rule: "A lease whose grant was ended in the store is told at its next renewal, long before its deadline.",
		Func:  endedInStore,
		Kills: []string{"no owner compare", "token demanded"},
	},
	{
		ID: "L3.1", Rule: "When the store was away for longer than all leases, they are lost, and the same client goes on with new ones.",
		Needs: NeedLease, Func: allLost,
		Kills: []string{"no moving on"},
	},
	{
		ID: "L3.2", Rule: "A waiter whose place was ended in the store takes a new one, and is not granted by the old.",
		Needs: NeedQueue, Func: placeEnded,
		Kills: []string{"ghost waiter", "no moving on"},
	},
	{
		ID: "L4.1", Rule: "Waiters and new acquires outlast a store that is away for a while.",
		Func:  outlast,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "L4.2", Rule: "Clients recover from a restart of the store by themselves, and exclude each other after it.",
		Needs: NeedRestart, Func: restart,
	},
}

func lostBeforeNext(t *T, f fate) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL()})
	bad.all(f)
	next := t.locks(b, name, nil)
	t.trustedUntil(l, time.Now())
	if l.Context().Err() == nil {
		t.Errorf("the lease's context had not ended when the next one was granted")
	}
	t.ends(l, holdfast.ErrLost)
	t.is(l.Release(t.ctx), holdfast.ErrLost, "release after the loss")
	bad.heal()
	t.frees(next)
}

func endsByItself(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true})
	t.busyUntil(deadlineOf(l), b, name, "within the TTL")
	t.ends(l, holdfast.ErrLost)
	if l.Valid() {
		t.Errorf("valid although its context has ended")
	}
	if d := deadlineOf(l); time.Now().Before(d.Add(-t.TTL() / 4)) {
		t.Errorf("ended %v before its deadline", time.Until(d))
	}
	t.frees(t.locks(b, name, nil))
}

func afterLoss(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	for range 3 {
		l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true})
		t.ends(l, holdfast.ErrLost)
		t.is(l.Check(t.ctx), holdfast.ErrLost, "Check")
		t.is(l.Renew(t.ctx, t.TTL()), holdfast.ErrLost, "Renew")
		t.is(l.Release(t.ctx), holdfast.ErrLost, "Release")
		t.is(l.Release(t.ctx), holdfast.ErrLost, "Release again")
		if l.Valid() {
			t.Errorf("valid again")
		}
		next := t.locks(b, name, nil)
		t.frees(next)
	}
	t.frees(t.locks(a, name, nil))
}

func lossSignal(t *T) {
	a, line := t.linked()
	b := t.Client()
	name, other := t.LockName(), t.LockName()
	l, kept := t.locks(a, name, nil), t.locks(a, other, nil)
	line.mu.Lock()
	say := line.say
	line.mu.Unlock()
	say(driver.Signal{Kind: driver.LostSignal, Owner: newOwner()})
	say(driver.Signal{Kind: driver.LostSignal, Owner: t.ownerOf(l)})
	t.ends(l, holdfast.ErrLost)
	if !kept.Valid() || kept.Context().Err() != nil {
		t.Errorf("the other lease ended too")
	}
	t.busy(b, other, nil, "the other name")
	t.frees(kept)
}

func (t *T) ownerOf(l *holdfast.Lease) (o driver.Owner) {
	if n, err := hex.Decode(o[:], []byte(l.Owner())); err != nil || n != len(o) {
		t.Fatalf("Owner() is %q", l.Owner())
	}
	return o
}

func endedInStore(t *T) {
	a, line := t.linked()
	b := t.Client()
	name := t.LockName()
	var seen driver.Name
	line.set(func(_ op, n driver.Name) fate { seen = n; return passes })
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	line.heal()
	// Somebody with access to the store deletes the record.
	if ok, err := line.Store.Release(t.ctx, &driver.ReleaseRequest{
		Ref: driver.Ref{Name: seen, Owner: t.ownerOf(l), Mode: driver.Exclusive},
	}); err != nil || !ok {
		t.Fatalf("release behind the client's back: %v, %v", ok, err)
	}
	next := t.gets(b, name, nil)
	if t.props.Bound == driver.ByLease {
		t.ends(l, holdfast.ErrLost)
	} else {
		t.eventually("Check tells the loss", func() bool { return errors.Is(l.Check(t.ctx), holdfast.ErrLost) })
	}
	t.is(l.Release(t.ctx), holdfast.ErrLost, "release after the loss")
	t.busy(a, name, nil, "after the loss")
	t.frees(next)
}

func allLost(t *T) {
	a, bad := t.linked()
	b := t.Client()
	var leases []*holdfast.Lease
	for range 5 {
		leases = append(leases, t.locks(a, t.LockName(), &holdfast.AcquireOptions{TTL: t.TTL()}))
	}
	bad.all(down)
	for _, l := range leases {
		t.ends(l, holdfast.ErrLost)
		t.frees(t.locks(b, l.Name(), nil))
	}
	bad.heal()
	for _, l := range leases {
		again := t.locks(a, l.Name(), nil)
		if l.Valid() {
			t.Errorf("an old lease came back to life")
		}
		t.busy(b, l.Name(), nil, "after the store came back")
		t.frees(again)
	}
}

func placeEnded(t *T) {
	a := t.Client()
	b, line := t.linked()
	p := t.peer()
	name := t.LockName()
	l := t.locks(a, name, nil)
	queuedAs := make(chan *driver.AcquireRequest, 8)
	line.mu.Lock()
	line.tap = func(r *driver.AcquireRequest) {
		if kept := *r; r.Queue {
			queuedAs <- &kept
		}
	}
	line.mu.Unlock()
	w := t.waiting(t.ctx, b, name, nil)
	var first, second *driver.AcquireRequest
	t.eventually("a place", func() bool {
		select {
		case first = <-queuedAs:
		default:
		}
		return first != nil
	})
	t.eventually("its end", func() bool { return p.abandoned(refTo(first)) })
	t.eventually("a new place", func() bool {
		select {
		case second = <-queuedAs:
		default:
		}
		return second != nil
	})
	if second.Owner == first.Owner {
		t.Errorf("the new place has the old owner")
	}
	t.frees(l)
	won := t.wins(w)
	if got := t.ownerOf(won); got == first.Owner {
		t.Errorf("granted by the place that was ended")
	}
	t.busy(a, name, nil, "while the waiter holds")
	t.frees(won)
}

func outlast(t *T) {
	a, b := t.Client(), t.Client()
	c, bad := t.linked()
	name := t.LockName()
	l := t.locks(a, name, nil)
	w := t.waiting(t.ctx, c, name, nil)
	bad.waits()
	bad.all(down)
	_, err := c.TryAcquire(t.ctx, t.LockName(), nil)
	t.is(err, holdfast.ErrUnavailable, "an attempt while the store is down")
	t.pause(t.TTL())
	bad.heal()
	t.frees(t.opens(c, t.LockName(), nil))
	t.frees(l)
	won := t.wins(w)
	t.busy(b, name, nil, "while the waiter holds")
	t.frees(won)
	t.frees(t.opens(b, name, nil))
}

func restart(t *T) {
	clients := t.clients(3)
	name, in := t.LockName(), &room{t: t, limit: 1}
	t.frees(t.locks(clients[0], name, nil))
	if err := t.h.Restart(t.ctx); err != nil {
		t.Fatalf("restart: %v", err)
	}
	t.crowd(6, clients, func(_ int, c *holdfast.Client) {
		ctx, cancel := context.WithTimeout(t.ctx, 3*liveness)
		defer cancel()
		for range 3 {
			l, err := c.Acquire(ctx, name, nil)
			if err != nil {
				t.Fatalf("after the restart: %v", err)
			}
			in.visit(1)
			t.frees(l)
		}
	})
	if n := in.visits.Load(); n != 18 {
		t.Errorf("%d visits, want 18", n)
	}
}
