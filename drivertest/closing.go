package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var closingCases = []Case{
	{
		ID: "E4.1", Rule: "Close frees everything that the client holds.",
		Quick: true, Func: closeFrees, About: AboutClient,
	},
	{
		ID: "E4.2", Rule: "Close ends the waits, leaves none of their places, and everything after it is ErrClosed.",
		Func:  closeEndsWaits,
		Kills: []string{"ghost waiter"},
	},
	{
		ID: "E4.3", Rule: "With LeaveOnClose the names stay taken until their leases run out.",
		Needs: NeedLease, Func: closeLeaves,
		Kills: []string{"close releases", "early end", "no moving on"},
	},
	{
		ID: "E4.4", Rule: "A store's own Close releases nothing, and other clients go on.",
		Needs: NeedLease, Func: storeClose,
		Kills: []string{"grant bound to its client", "close releases", "try takes a place"},
	},
	{
		ID: "E4.5", Rule: "Close may come at any moment, from several goroutines, before or after a release.",
		Func: closeAnyTime, About: AboutClient,
	},
	{
		ID: "E5.1", Rule: "The context of the acquire does not bound the hold.",
		Quick: true, Func: acquireContext, About: AboutClient,
		Kills: []string{"empty renew"},
	},
	{
		ID: "E5.2", Rule: "The lease's context carries the values of the acquire's and ends with its release.",
		Func: contextValues, About: AboutClient,
	},
	{
		ID: "E5.3", Rule: "Mutex, RWMutex and Semaphore are the same locks by another name.",
		Func:  sugar,
		Kills: []string{"reader beside writer", "one permit too many"},
	},
}

func closeFrees(t *T) {
	a, b := t.Client(), t.Client()
	var leases []*holdfast.Lease
	for range 5 {
		leases = append(leases, t.gets(a, t.LockName(), nil))
	}
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, l := range leases {
		if l.Valid() || l.Context().Err() == nil {
			t.Errorf("a lease outlives Close")
		}
		t.frees(t.gets(b, l.Name(), nil))
	}
}

func closeEndsWaits(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	var ws []*waiting
	for range 5 {
		ws = append(ws, t.waiting(t.ctx, b, name, nil))
	}
	t.pause(t.TTL() / 10)
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, w := range ws {
		t.await(w.done, "a wait whose client was closed")
		t.is(w.err, holdfast.ErrClosed, "a wait whose client was closed")
	}
	_, err := b.TryAcquire(t.ctx, name, nil)
	t.is(err, holdfast.ErrClosed, "TryAcquire after Close")
	_, err = b.Acquire(t.ctx, name, nil)
	t.is(err, holdfast.ErrClosed, "Acquire after Close")
	t.frees(l)
	t.frees(t.gets(c, name, nil)) // none of the five is ahead
}

func closeLeaves(t *T) {
	a := t.ClientWith(&holdfast.Options{LeaveOnClose: true})
	b := t.Client()
	name := t.LockName()
	sent := time.Now()
	l := t.gets(a, name, &holdfast.AcquireOptions{TTL: 2 * t.TTL(), NoRenew: true})
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if l.Valid() || l.Context().Err() == nil {
		t.Errorf("a lease outlives Close")
	}
	t.busyUntil(sent.Add(2*t.TTL()), b, name, "a lease that was left")
	next := t.locks(b, name, nil)
	if gap := time.Since(sent); gap < 2*t.TTL()-t.TTL()/50 {
		t.Errorf("granted after %v, the lease that was left runs for %v", gap, 2*t.TTL())
	}
	t.frees(next)
}

func storeClose(t *T) {
	a, b := t.peers()
	n := t.Name()
	store := t.Open()
	if signaler, ok := store.(driver.Signaler); ok {
		signaler.Listen(func(driver.Signal) {})
	}
	r := a.request(n, nil)
	res, err := store.Acquire(t.ctx, r)
	if err != nil || res.Status != driver.Granted {
		t.Fatalf("acquire: %v, status %d", err, res.Status)
	}
	if err := store.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	b.refused(n, "after the holder's store was closed")
	ref := refTo(r)
	ref.Token = res.Grant.Token
	a.keeps(ref, driver.Renewed, "a grant whose client was closed, by another client")
	if !a.released(ref) {
		t.Errorf("release by another client of the store answered false")
	}
	b.frees(b.granted(n))
}

func closeAnyTime(t *T) {
	b := t.Client()
	name := t.LockName()
	for i := range 6 {
		a := t.Client()
		l := t.opens(a, name, nil)
		if i%3 == 0 {
			t.frees(l)
		}
		var done []<-chan struct{}
		for range 3 {
			done = append(done, t.Go(func() { _ = a.Close() })) // one of them says what is to say
		}
		if i%3 == 1 {
			done = append(done, t.Go(func() { _ = l.Release(t.ctx) }))
		}
		for _, d := range done {
			t.await(d, "Close")
		}
		if l.Valid() {
			t.Errorf("valid after Close")
		}
		_ = l.Release(t.ctx) // legal, whatever it says
		t.frees(t.gets(b, name, nil))
	}
}

func acquireContext(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	ctx, cancel := context.WithTimeout(t.ctx, liveness)
	l, err := a.Acquire(ctx, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	cancel()
	for range 4 {
		t.pause(t.Steady() / 3)
		t.busy(b, name, nil, "after the acquire's context ended")
		if !l.Valid() || l.Context().Err() != nil {
			t.Fatalf("lost: %v", context.Cause(l.Context()))
		}
	}
	t.frees(l)
}

type valueKey struct{}

func contextValues(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	first := t.locks(b, name, nil)
	w := t.waiting(context.WithValue(t.ctx, valueKey{}, "mine"), a, name, nil)
	t.pause(t.TTL() / 10)
	t.frees(first)
	l := t.wins(w)
	if got := l.Context().Value(valueKey{}); got != "mine" {
		t.Errorf("the value is %v", got)
	}
	t.frees(l)
	t.ends(l, holdfast.ErrReleased)
}
