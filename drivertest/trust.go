package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var trustCases = []Case{
	{
		ID: "G4.1", Rule: "A grant's window is at least the TTL asked for, and what the store says of its moment lies before the answer.",
		Quick: true, Func: honestWindow,
		Kills: []string{"coarse window"},
	},
	{
		ID: "G4.2", Rule: "The holder's deadline lies before the moment at which the next one is granted.",
		Needs: NeedLease, Quick: true, Func: deadlineBeforeNext,
		Kills: []string{"deadline from the reply", "early end"},
	},
	{
		ID: "G4.3", Rule: "An acquire that takes longer than its TTL is not returned as held.",
		Needs: NeedLease, Func: slowAcquire, About: AboutClient,
	},
	{
		ID: "G4.4", Rule: "A waiter that was handed the name and cannot reach the store stops trusting before the store grants it to the next.",
		Needs: NeedLease | NeedQueue, Func: claimNeverArrives,
		Kills: []string{"claim window ignored", "no moving on"},
	},
	{
		ID: "G4.5", Rule: "A grant by hand-over lives for the claim window that its signal names: no shorter, and not for the TTL.",
		Needs: NeedLease | NeedQueue, Func: claimWindow,
		Kills: []string{"no owner compare", "owner is the client", "claim window ignored", "missed wake-up", "silent hand-over", "no moving on"},
	},
	{
		ID: "G4.6", Rule: "Renewals by hand neither add up nor shorten, and the store keeps what they promise.",
		Needs: NeedLease, Func: renewByHand,
		Kills: []string{"shortening renew", "adding renew", "empty renew"},
	},
	{
		ID: "G4.7", Rule: "A hold without a window of its own has no deadline and stays valid.",
		Needs: NeedSession, Func: noDeadline,
	},
}

func honestWindow(t *T) {
	a, b := t.peers()
	for _, ttl := range []time.Duration{t.TTL(), t.TTL() + 7*time.Millisecond, 1500*time.Millisecond + t.TTL(), t.Long()} {
		n := t.Name()
		h := a.granted(n, lasting(ttl))
		if w := h.grant.Window; w < ttl && t.props.Bound == driver.ByLease {
			t.Errorf("window %v for a TTL of %v", w, ttl)
		}
		if s := h.grant.Sent; s > h.got {
			t.Errorf("Sent lies %v after the answer", s.Sub(h.got))
		}
		if _, res := b.ask(n); res.Status != driver.Held && !h.ranOut() {
			t.Errorf("within the window: status %d, want held", res.Status)
		}
		a.frees(h)
	}
}

func deadlineBeforeNext(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	for range 3 {
		l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true})
		next := t.locks(b, name, nil)
		granted := time.Now()
		t.trustedUntil(l, granted)
		t.frees(next)
	}
}

// trustedUntil asserts that a lease was not trusted any more at a moment, and
// is not now.
func (t *T) trustedUntil(l *holdfast.Lease, granted time.Time) {
	end, ok := l.Deadline()
	if !ok {
		t.Fatalf("the lease has no deadline")
	}
	if !end.Before(granted) {
		t.Errorf("trusted until %v after the next one was granted", end.Sub(granted))
	}
	if l.Valid() {
		t.Errorf("still valid after the next one was granted")
	}
}

func slowAcquire(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	// The request is handled at once; its answer takes its time.
	bad.set(func(o op, _ driver.Name) fate {
		if o == opAcquire && bad.count(opAcquire) == 1 {
			return slow
		}
		return passes
	})
	l, err := a.TryAcquire(t.ctx, name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true})
	if err == nil && !l.Valid() {
		t.Errorf("returned a lease whose trust is over")
	}
	next := t.locks(b, name, nil)
	if err == nil {
		t.trustedUntil(l, time.Now())
	}
	t.frees(next)
}

func claimNeverArrives(t *T) {
	a, c := t.Client(), t.Client()
	b, bad := t.linked()
	name := t.LockName()
	first := t.locks(a, name, nil)
	second := t.waiting(t.ctx, b, name, &holdfast.AcquireOptions{TTL: 30 * time.Second})
	bad.waits()
	third := t.waiting(t.ctx, c, name, nil)
	bad.all(hangs, opRenew, opBeat, opRelease, opAcquire)
	t.frees(first)
	next := t.wins(third)
	granted := third.at
	// The second one may have been granted, and then trusted it for a while.
	select {
	case <-second.done:
		if second.err == nil {
			t.trustedUntil(second.lease, granted)
		}
	default:
	}
	bad.heal()
	t.frees(next)
	<-second.done
}

func claimWindow(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	claim := t.TTL()
	first, second := b.place(n, claiming(claim)), a.place(n)
	sent := driver.Now()
	a.frees(h)
	handed := b.told(first)
	if w := handed.grant.Window; w < claim || w > claim+max(time.Second, t.props.Granularity) {
		t.Errorf("a hand-over's window is %v, asked for was a claim window of %v", w, claim)
	}
	if handed.grant.Sent > driver.Now() {
		t.Errorf("Sent lies in the future")
	}
	handed.sent = sent
	next := a.moved(second) // the first never claims
	t.notBefore(handed, next, handed.grant.Window)
	b.keeps(handed.Ref, driver.Lost, "a grant whose claim window is over")
	a.keeps(next.Ref, driver.Renewed, "the next waiter's grant")
	a.frees(next)
}

func renewByHand(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	first, second := t.Steady(), t.Steady()+t.TTL()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: first, NoRenew: true})
	before := deadlineOf(l)
	for range 30 {
		if err := l.Renew(t.ctx, t.TTL()); err != nil {
			t.Fatalf("renew: %v", err)
		}
	}
	if d := deadlineOf(l); before.Sub(d) > clockNoise {
		t.Errorf("renewals with a shorter TTL took %v of the deadline", before.Sub(d))
	}
	if err := l.Renew(t.ctx, second); err != nil {
		t.Fatalf("renew: %v", err)
	}
	end := time.Now().Add(second + t.props.Granularity)
	d := deadlineOf(l)
	if d.After(end) || !d.After(before) {
		t.Errorf("after a renewal for %v the deadline is %v from now", second, time.Until(d))
	}
	next := t.locks(b, name, nil)
	t.trustedUntil(l, time.Now())
	t.frees(next)
}

func noDeadline(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL()})
	if d, ok := l.Deadline(); ok && time.Until(d) < 0 {
		t.Errorf("a deadline that is over: %v", d)
	}
	t.pause(3 * t.TTL())
	if !l.Valid() || l.Context().Err() != nil {
		t.Errorf("not valid any more: %v", l.Context().Err())
	}
	t.busy(b, name, nil, "after three TTLs")
	t.frees(l)
}
