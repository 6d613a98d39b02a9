package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var attemptCases = []Case{
	{
		ID: "W1.1", Rule: "A refused attempt leaves nothing in the store: a hundred of them are in nobody's way.",
		Quick: true, Func: triesLeaveNothing,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "W1.2", Rule: "TryAcquire is one request, answered at once, also while others wait.",
		Func:  tryIsOneRequest,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "W1.3", Rule: "A bounded wait ends with ErrTimeout, not before its bound, and says that the name was held.",
		Quick: true, Func: boundedWait,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "W1.4", Rule: "The TTL starts at the grant: a lease won after a wait of several TTLs is real.",
		Func:  ttlStartsAtGrant,
		Kills: []string{"empty renew"},
	},
	{
		ID: "W1.5", Rule: "A context that has ended already takes nothing.",
		Func:  endedContext,
		Kills: []string{"refusal untrue"},
	},
	{
		ID: "W1.6", Rule: "Tries bounds the attempts, and they take no place.",
		Func: boundedTries, About: AboutClient,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "W1.7", Rule: "A bounded wait makes a last attempt at its end.",
		Func: lastAttempt, About: AboutClient,
	},
}

func triesLeaveNothing(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	for range 100 {
		b.refused(n, "beside the holder")
	}
	a.frees(h)
	// Nobody waits, so nobody may be handed the name.
	c := t.peer()
	c.frees(c.granted(n))
	a.frees(a.granted(n))
}

func tryIsOneRequest(t *T) {
	a, c := t.Client(), t.Client()
	b, bad := t.linked()
	name := t.LockName()
	l := t.locks(a, name, nil)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	w := t.waiting(ctx, c, name, nil)
	for i := range 3 {
		t.busy(b, name, nil, "while it is held")
		if n := bad.count(opAcquire, opBlock); n != i+1 {
			t.Errorf("%d requests for %d attempts", n, i+1)
		}
	}
	cancel()
	<-w.done
	t.frees(l)
	t.frees(t.opens(b, name, nil))
}

func boundedWait(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	for _, wait := range []time.Duration{time.Millisecond, t.TTL() / 2} {
		// Nobody may have answered so soon, nor even have been asked on a busy machine.
		unanswered := func(err error) bool {
			return wait == time.Millisecond && !errors.Is(err, holdfast.ErrHeld)
		}
		begin := time.Now()
		_, err := b.Acquire(t.ctx, name, &holdfast.AcquireOptions{Wait: wait})
		t.is(err, holdfast.ErrTimeout, "a wait that ran out")
		if !unanswered(err) {
			t.is(err, holdfast.ErrHeld, "a wait that ran out")
		}
		if errors.Is(err, context.DeadlineExceeded) && !unanswered(err) {
			t.Errorf("the caller's context is blamed: %v", err)
		}
		if took := time.Since(begin); took < wait || took > wait+liveness {
			t.Errorf("a wait of %v took %v", wait, took)
		}
		ctx, cancel := context.WithTimeout(t.ctx, wait)
		_, err = b.Acquire(ctx, name, nil)
		cancel()
		for _, want := range []error{holdfast.ErrTimeout, holdfast.ErrHeld, context.DeadlineExceeded} {
			if want != holdfast.ErrHeld || !unanswered(err) { //nolint:errorlint // from the list
				t.is(err, want, "a context that ran out")
			}
		}
	}
	t.frees(l)
	t.frees(t.opens(b, name, nil))
}

func ttlStartsAtGrant(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	w := t.waiting(t.ctx, b, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	t.pause(t.Steady() + t.Steady()/4)
	t.frees(l)
	won := t.wins(w)
	if !won.Valid() {
		t.Errorf("not valid when it was won")
	}
	for range 4 {
		t.pause(t.Steady() / 3)
		t.busy(c, name, nil, "while the one who waited long holds")
	}
	t.frees(won)
}

func endedContext(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, acquire := range []func() (*holdfast.Lease, error){
		func() (*holdfast.Lease, error) { return a.Acquire(ctx, name, nil) },
		func() (*holdfast.Lease, error) { return a.TryAcquire(ctx, name, nil) },
	} {
		l, err := acquire()
		t.is(err, context.Canceled, "an ended context")
		if l != nil {
			t.Errorf("a lease with an ended context")
		}
	}
	t.frees(t.opens(b, name, nil))
	// The driver's answer to the same.
	p := t.peer()
	n := t.Name()
	r := p.request(n, nil)
	res, err := p.Acquire(ctx, r)
	kind := driver.Indeterminate // an answer is no error, but may be a grant
	if err != nil {
		kind = p.Classify(err)
	} else if res.Status != driver.Granted {
		t.Errorf("Acquire with an ended context: status %d", res.Status)
	}
	switch kind {
	case driver.Canceled, driver.Unavailable: // surely nothing was done
	case driver.Indeterminate:
		p.abandoned(refTo(r))
	default:
		t.Errorf("Acquire with an ended context: %v is %v", err, kind)
	}
	p.frees(p.granted(n))
}

func boundedTries(t *T) {
	a := t.Client()
	b, bad := t.linked()
	name := t.LockName()
	l := t.locks(a, name, nil)
	_, err := b.Acquire(t.ctx, name, &holdfast.AcquireOptions{Tries: 3})
	t.is(err, holdfast.ErrHeld, "three tries")
	if n := bad.count(opAcquire); n != 3 {
		t.Errorf("%d requests for three tries", n)
	}
	if n := bad.count(opBlock, opBeat); n != 0 {
		t.Errorf("tries waited in the store")
	}
	t.frees(l)
	t.frees(t.gets(b, name, &holdfast.AcquireOptions{Tries: 1}))
}

func lastAttempt(t *T) {
	a := t.Client()
	b, bad := t.linked()
	name := t.LockName()
	l := t.locks(a, name, nil)
	wait := 2 * t.TTL()
	w := t.waiting(t.ctx, b, name, &holdfast.AcquireOptions{Wait: wait, Unfair: true})
	bad.waits()
	t.await(w.done, "the waiter")
	t.is(w.err, holdfast.ErrTimeout, "the wait")
	if n := bad.count(opAcquire, opBlock); n < 2 {
		t.Errorf("%d requests: no last attempt was made", n)
	}
	t.frees(l)
}
