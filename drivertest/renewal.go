package drivertest

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var renewalCases = []Case{
	{
		ID: "L2.1", Rule: "A grant that has lapsed is never renewed, also if nobody has taken the name since.",
		Needs: NeedLease, Quick: true, Func: neverRevives,
		Kills: []string{"no owner compare", "blind extend", "asking extends"},
	},
	{
		ID: "L2.2", Rule: "A grant that was released is never renewed, and the attempt does not take the name.",
		Quick: true, Func: neverAfterRelease,
		Kills: []string{"no owner compare", "renew after release"},
	},
	{
		ID: "L2.3", Rule: "A renewal with a shorter TTL does not shorten the grant.",
		Needs: NeedLease, Func: neverShortens,
		Kills: []string{"shortening renew", "early end", "try takes a place"},
	},
	{
		ID: "L2.4", Rule: "A renewal extends from its own moment: repeated ones do not add up, and the grant outlives its first window.",
		Needs: NeedLease, Func: neverAddsUp,
		Kills: []string{"adding renew", "empty renew", "try takes a place"},
	},
	{
		ID: "L2.5", Rule: "A lease that renews itself holds for many TTLs.",
		Quick: true, Func: holdsOn,
		Kills: []string{"empty renew", "try takes a place"},
	},
	{
		ID: "L2.6", Rule: "A few renewals that fail do not end a lease.",
		Needs: NeedLease, Func: survivesErrors, About: AboutClient,
	},
	{
		ID: "L2.7", Rule: "No renewal is sent after the release has returned, whatever the moment; nobody keeps a name for ever.",
		Func: noneAfterRelease, About: AboutClient,
	},
	{
		ID: "L2.8", Rule: "Each of many renewals is answered in its place as it would be alone.",
		Func:  manyRenewals,
		Kills: []string{"no owner compare", "renew after release", "all lost for one"},
	},
	{
		ID: "L2.9", Rule: "A renewal that hangs costs its own lease, not the others.",
		Needs: NeedLease, Func: oneHangs,
		Kills: []string{"empty renew"},
	},
	{
		ID: "L2.10", Rule: "With MaxHold the lease ends so long after its grant, renewed or not, and the next one gets in.",
		Func: maxHold, About: AboutClient,
	},
	{
		ID: "L2.11", Rule: "A renewal that only asks extends nothing.",
		Needs: NeedLease, Func: asksOnly,
		Kills: []string{"asking extends"},
	},
}

func neverRevives(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(t.TTL()))
	t.eventually("the grant lapses", func() bool { return a.renewed(h.Ref, 0).Status == driver.Lost })
	a.keeps(h.Ref, driver.Lost, "a lapsed grant")
	b.keeps(h.Ref, driver.Lost, "a lapsed grant, by another client")
	next := b.granted(n)
	a.keeps(h.Ref, driver.Lost, "a lapsed grant whose name was granted anew")
	b.frees(next)
	a.keeps(h.Ref, driver.Lost, "a lapsed grant whose name is free again")
	b.frees(b.granted(n))
}

func neverAfterRelease(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	a.keeps(h.Ref, driver.Renewed, "a live grant")
	a.frees(h)
	a.keeps(h.Ref, driver.Lost, "a released grant")
	next := b.granted(n)
	a.keeps(h.Ref, driver.Lost, "a released grant whose name was granted anew")
	b.frees(next)
	a.keeps(h.Ref, driver.Lost, "a released grant whose name is free again")
	b.frees(b.granted(n))
}

func neverShortens(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(4*t.TTL()))
	res := a.renewed(h.Ref, t.TTL())
	if res.Status != driver.Renewed || res.Window < t.TTL() {
		t.Errorf("renewal: status %d, window %v", res.Status, res.Window)
	}
	t.notBefore(h, b.obtains(n), 4*t.TTL())
}

func neverAddsUp(t *T) {
	a, b := t.peers()
	n := t.Name()
	first, ttl := t.Steady(), 2*t.Steady()
	h := a.granted(n, lasting(first))
	for range 200 {
		res := a.renewed(h.Ref, ttl)
		if limit := ttl + t.props.Granularity; res.Status != driver.Renewed || res.Window > limit {
			t.Fatalf("renewal: status %d, window %v for a TTL of %v", res.Status, res.Window, ttl)
		}
	}
	h.sent = driver.Now() // no later than…
	res := a.renewed(h.Ref, ttl)
	if res.Status != driver.Renewed {
		t.Fatalf("renewal: status %d", res.Status)
	}
	next := b.obtains(n) // bounded: 200 windows would be far beyond it
	t.notBefore(h, next, ttl)
	b.frees(next)
}

func holdsOn(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	for range 8 {
		t.pause(t.Steady() / 4)
		t.busy(b, name, nil, "beside a lease that renews itself")
		if !l.Valid() || l.Context().Err() != nil {
			t.Fatalf("lost: %v", context.Cause(l.Context()))
		}
		if err := l.Check(t.ctx); err != nil {
			t.Errorf("Check: %v", err)
		}
	}
	t.frees(l)
	t.frees(t.gets(b, name, nil))
}

func survivesErrors(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: 2 * t.Steady()})
	var failed atomic.Int32
	bad.set(func(o op, _ driver.Name) fate {
		if o == opRenew && failed.Add(1) <= 2 {
			return []fate{down, replyLost}[failed.Load()%2]
		}
		return passes
	})
	t.eventually("renewals after the failed ones", func() bool { return failed.Load() >= 4 })
	t.busy(b, name, nil, "after failed renewals")
	if !l.Valid() || l.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(l.Context()))
	}
	t.frees(l)
}

func noneAfterRelease(t *T) {
	a, line := t.linked()
	b := t.Client()
	name := t.LockName()
	for range 40 {
		ctx, cancel := context.WithCancel(t.ctx)
		w := t.waiting(ctx, a, name, &holdfast.AcquireOptions{TTL: t.TTL()})
		t.pause(rand.N(3 * time.Millisecond))
		cancel()
		t.await(w.done, "a cancelled acquire")
		if w.err == nil {
			_ = w.lease.Release(t.ctx) // lost, if this machine slept
		}
	}
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL()})
	t.pause(t.TTL())
	_ = l.Release(t.ctx)
	before := line.count(opRenew)
	t.frees(t.opens(b, name, nil))
	t.pause(t.TTL())
	if n := line.count(opRenew) - before; n > 0 {
		t.Errorf("%d renewals after the release", n)
	}
	t.frees(t.gets(b, name, nil))
}

func manyRenewals(t *T) {
	a, b := t.peers()
	var reqs []driver.RenewRequest
	var want []driver.RenewStatus
	sharder, sharded := a.Store.(driver.Sharder)
	for i := range 12 {
		h := a.granted(t.Name())
		if sharded && len(reqs) > 0 && sharder.Shard(h.Ref) != sharder.Shard(reqs[0].Ref) {
			a.frees(h)
			continue // never travels with the others
		}
		status := driver.Renewed
		switch i % 4 {
		case 1:
			a.frees(h)
			status = driver.Lost
		case 2:
			h.Owner = newOwner()
			status = driver.Lost
		}
		reqs = append(reqs, driver.RenewRequest{Ref: h.Ref, TTL: t.Long()})
		want = append(want, status)
	}
	for i, res := range a.renewals(reqs...) {
		if res.Status != want[i] {
			t.Errorf("renewal %d of %d: status %d, want %d", i, len(reqs), res.Status, want[i])
		}
	}
	for i, req := range reqs {
		if want[i] == driver.Renewed {
			b.refused(req.Name, "beside a renewed grant")
			a.released(req.Ref)
		}
	}
}

func oneHangs(t *T) {
	a, bad := t.linked()
	b := t.Client()
	var kept []*holdfast.Lease
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	for range 5 {
		kept = append(kept, t.locks(a, t.LockName(), &holdfast.AcquireOptions{TTL: t.Steady()}))
	}
	bad.set(func(o op, n driver.Name) fate {
		if o == opRenew && n.Full == name {
			return hangs
		}
		return passes
	})
	t.ends(l, holdfast.ErrLost)
	t.pause(t.Steady())
	for _, k := range kept {
		if !k.Valid() {
			t.Errorf("a lease was lost for another's renewal: %v", context.Cause(k.Context()))
		}
		t.busy(b, k.Name(), nil, "beside a lease that is renewed")
	}
	bad.heal()
	for _, k := range kept {
		t.frees(k)
	}
}

func maxHold(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	begin := time.Now()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL(), MaxHold: 2 * t.TTL()})
	granted := time.Now()
	next := t.waiting(t.ctx, b, name, nil)
	t.await(l.Context().Done(), "the end of MaxHold")
	if took := time.Since(begin); took > 2*t.TTL()+liveness {
		t.Errorf("ended after %v", took)
	}
	won := t.wins(next)
	if l.Valid() {
		t.Errorf("valid beyond MaxHold")
	}
	if d := deadlineOf(l); d.After(granted.Add(2*t.TTL())) && t.props.Bound == driver.ByLease {
		t.Errorf("the deadline is %v after the end of MaxHold", d.Sub(granted.Add(2*t.TTL())))
	}
	t.frees(won)
}

func asksOnly(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(2*t.TTL()))
	begin := time.Now()
	t.eventually("the grant lapses although it is asked about", func() bool {
		res := a.renewed(h.Ref, 0)
		if res.Status == driver.Renewed && res.Window > 2*t.TTL()+t.props.Granularity {
			t.Fatalf("window %v", res.Window)
		}
		return res.Status == driver.Lost
	})
	if took := time.Since(begin); took < t.TTL() {
		t.Errorf("lapsed after %v, asked for was %v", took, 2*t.TTL())
	}
	b.frees(b.granted(n))
}
