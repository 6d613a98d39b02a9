package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast"
)

var reentryCases = []Case{
	{
		ID: "G5.1", Rule: "A reentrant acquire with the lease's context counts and has the same token; only the last release frees.",
		Func:  reentrantByContext,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "G5.2", Rule: "A reentrancy key counts within one client, across goroutines, and means nothing to another client.",
		Func:  reentrantByKey,
		Kills: []string{"owner is the client", "try takes a place"},
	},
	{
		ID: "G5.3", Rule: "A nested acquire with a shorter TTL does not shorten the outer hold.",
		Needs: NeedLease, Func: nestedNeverShortens,
		Kills: []string{"deadline from the reply", "early end"},
	},
	{
		ID: "G5.4", Rule: "Without being asked for, nothing is reentrant: the lease's own context gets ErrConflict at once, and anybody else ErrHeld.",
		Func: notReentrant, About: AboutClient,
		Kills: []string{"owner is the client", "try takes a place"},
	},
	{
		ID: "G5.5", Rule: "Exclusive covers shared, and goes on when only the shared level is left; shared to exclusive is ErrConflict.",
		Needs: NeedShared, Func: downgrade,
		Kills: []string{"empty renew"},
	},
}

func reentrantByContext(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	o := &holdfast.AcquireOptions{Reentrant: true}
	outer := t.locks(a, name, o)
	inner, err := a.Acquire(outer.Context(), name, o)
	if err != nil {
		t.Fatalf("nested acquire: %v", err)
	}
	if inner.Token() != outer.Token() {
		t.Errorf("the nested lease has token %d, the outer %d", inner.Token(), outer.Token())
	}
	t.frees(outer) // in any order
	t.busy(b, name, nil, "after the first of two releases")
	if !inner.Valid() {
		t.Errorf("the inner lease ended with the outer")
	}
	t.frees(inner)
	t.frees(t.gets(b, name, nil))
}

func reentrantByKey(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	o := &holdfast.AcquireOptions{Key: "order-42"}
	outer := t.locks(a, name, o)
	var inner *holdfast.Lease
	t.await(t.Go(func() { inner = t.gets(a, name, o) }), "a nested acquire by another goroutine")
	if inner == nil {
		t.Fatalf("the nested acquire failed")
	}
	t.busy(b, name, o, "another client with the same key")
	t.busy(a, name, &holdfast.AcquireOptions{Key: "order-43"}, "another key in the same client")
	t.frees(inner)
	t.busy(b, name, o, "after the first of two releases")
	t.frees(outer)
	t.frees(t.gets(b, name, o))
}

func nestedNeverShortens(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	outer := t.locks(a, name, &holdfast.AcquireOptions{TTL: 4 * t.TTL(), NoRenew: true, Reentrant: true})
	before := deadlineOf(outer)
	inner, err := a.Acquire(outer.Context(), name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true, Reentrant: true})
	if err != nil {
		t.Fatalf("nested acquire: %v", err)
	}
	if d := deadlineOf(outer); before.Sub(d) > clockNoise {
		t.Errorf("the nested acquire took %v of the deadline", before.Sub(d))
	}
	next := t.waiting(t.ctx, b, name, nil)
	t.pause(time.Until(before) / 2)
	if (!outer.Valid() || !inner.Valid()) && time.Now().Before(before) { // by then unless this machine slept
		t.Errorf("not valid half-way to the outer deadline")
	}
	t.frees(t.wins(next))
	t.trustedUntil(outer, next.at)
	t.trustedUntil(inner, next.at)
}

func notReentrant(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	_, err := a.Acquire(l.Context(), name, nil)
	t.is(err, holdfast.ErrConflict, "acquire with the lease's own context")
	_, err = a.TryAcquire(l.Context(), name, nil)
	t.is(err, holdfast.ErrConflict, "attempt with the lease's own context")
	t.busy(a, name, nil, "an attempt of the same goroutine")
	t.busy(a, name, &holdfast.AcquireOptions{Reentrant: true}, "a reentrant attempt without the lease's context")
	t.busy(b, name, nil, "another client")
	t.frees(l)
	t.frees(t.gets(b, name, nil))
}

func downgrade(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	write := t.locks(a, name, nested(holdfast.Exclusive, t.Steady()))
	writer := t.waiting(t.ctx, b, name, nil)
	read, err := a.Acquire(write.Context(), name, nested(holdfast.Shared, t.Steady()))
	if err != nil {
		t.Fatalf("read under one's own write: %v", err)
	}
	t.frees(write)
	for range 4 { // longer than the TTL, so that it is renewed
		t.pause(t.Steady() / 3)
		t.busy(c, name, nil, "a writer beside the reader that was a writer")
	}
	if !read.Valid() {
		t.Errorf("the read level is not valid")
	}
	select {
	case <-writer.done:
		t.Errorf("a writer that waited was let in beside the reader that was a writer: %v", writer.err)
	default:
	}
	t.frees(read)
	t.frees(t.wins(writer))
	r := t.locks(c, name, nested(holdfast.Shared, 0))
	_, err = c.Acquire(r.Context(), name, nested(holdfast.Exclusive, 0))
	t.is(err, holdfast.ErrConflict, "write under one's own read")
	t.frees(r)
}

func nested(mode holdfast.Mode, ttl time.Duration) *holdfast.AcquireOptions {
	return &holdfast.AcquireOptions{Mode: mode, Reentrant: true, TTL: ttl}
}
