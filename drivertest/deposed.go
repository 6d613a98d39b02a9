package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// cutOffLeaderStops is B151.
func cutOffLeaderStops(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name, in := t.LockName(), &office{t: t}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	begun := make(chan struct{}, 8)
	one := t.Go(func() {
		e := a.Election(name).With(holdfast.ElectionOptions{TTL: t.TTL()})
		_ = e.Run(ctx, func(ctx context.Context, term *holdfast.Term) error { // ends with ctx
			defer in.enters("the first", term)()
			begun <- struct{}{}
			<-ctx.Done()
			return nil
		})
	})
	receive(t, begun, "the first leader")
	bad.all(hangs)
	next := t.leads(b.Election(name), "")
	left := in.enters("the second", next)
	t.pause(t.TTL() / 4)
	left()
	bad.heal()
	t.resigns(next)
	receive(t, begun, "the first leader's next term") // it leads again by itself
	cancel()
	t.await(one, "the first leader's end")
}

// resignsAnyway is B145.
func resignsAnyway(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	term := t.leads(a.Election(name), "")
	w := t.waiting(t.ctx, b, name, nil)
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	err := term.Resign(ended)
	if term.Valid() || term.Context().Err() == nil {
		t.Errorf("leads after it has resigned")
	}
	if err != nil {
		t.Errorf("resign with an ended context: %v", err)
	}
	if err = term.Resign(t.ctx); err != nil {
		t.Errorf("resign again: %v", err)
	}
	t.frees(t.wins(w))
}

// campaignsCalledOff is B144.
func campaignsCalledOff(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	term := t.leads(a.Election(name), "")
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.ctx, time.Duration(i)*time.Millisecond)
		if lost, err := b.Election(name).Campaign(ctx, ""); err == nil {
			t.Errorf("elected beside the leader")
			t.resigns(lost)
		}
		cancel()
	}
	next := make(chan *holdfast.Term, 1)
	waits := t.Go(func() { next <- t.leads(c.Election(name), "") })
	begin := time.Now()
	t.resigns(term)
	t.await(waits, "the next leader")
	t.prompt(begin, "the next election")
	t.resigns(receive(t, next, "its term"))
}

// deposedInStore is B056.
func deposedInStore(t *T) {
	a, line := t.linked()
	b := t.Client()
	name := t.LockName()
	var mu sync.Mutex
	var seen driver.Name
	line.set(func(_ op, n driver.Name) fate {
		mu.Lock()
		defer mu.Unlock()
		seen = n
		return passes
	})
	terms := make(chan *holdfast.Term, 8)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	runs := t.Go(func() {
		e := a.Election(name).With(holdfast.ElectionOptions{TTL: t.Steady()})
		_ = e.Run(ctx, func(ctx context.Context, term *holdfast.Term) error { // ends with ctx
			terms <- term
			<-ctx.Done()
			return nil
		})
	})
	first := receive(t, terms, "the first leader")
	mu.Lock()
	n := seen
	mu.Unlock()
	line.heal()
	if ok, err := line.Store.Release(t.ctx, &driver.ReleaseRequest{
		Ref: driver.Ref{Name: n, Owner: t.ownerOf(first.Lease), Mode: driver.Exclusive},
	}); err != nil || !ok {
		t.Fatalf("release behind the client's back: %v, %v", ok, err)
	}
	next := t.leads(b.Election(name), "")
	if t.props.Bound != driver.ByLease { // no renewal tells it
		t.eventually("the leader learns of it", func() bool { return errors.Is(first.Check(t.ctx), holdfast.ErrLost) })
	}
	t.ends(first.Lease, holdfast.ErrLost)
	t.resigns(next)
	again := receive(t, terms, "its next term")
	if again.Owner() == first.Owner() || again.Token() <= next.Token() && t.props.Fencing {
		t.Errorf("leads again with owner %s and token %d", again.Owner(), again.Token())
	}
	cancel()
	t.await(runs, "the end of Run")
}

func placeOfCandidate(t *T) {
	a, p := t.Client(), t.peer()
	b, line := t.linked()
	name := t.LockName()
	term := t.leads(a.Election(name), "")
	places := make(chan *driver.AcquireRequest, 8)
	line.mu.Lock()
	line.tap = func(r *driver.AcquireRequest) {
		if kept := *r; r.Queue {
			places <- &kept
		}
	}
	line.mu.Unlock()
	next := make(chan *holdfast.Term, 1)
	waits := t.Go(func() { next <- t.leads(b.Election(name), "") })
	first := receive(t, places, "a place")
	t.eventually("the end of the place", func() bool { return p.abandoned(refTo(first)) })
	second := receive(t, places, "a new place")
	if second.Owner == first.Owner {
		t.Errorf("the new place has the old owner")
	}
	t.resigns(term)
	t.await(waits, "the candidate")
	t.resigns(receive(t, next, "its term"))
}

func brokenLeader(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name, in := t.LockName(), &office{t: t}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	first := make(chan *holdfast.Term, 8)
	one := t.Go(func() {
		_ = a.Election(name).Run(ctx, func(ctx context.Context, term *holdfast.Term) error { // ends with ctx
			defer in.enters("the first", term)()
			first <- term
			<-ctx.Done()
			return nil
		})
	})
	term := receive(t, first, "the first leader")
	o := holdfast.BreakOptions{Owner: term.Owner(), Reason: "your turn is over"}
	if err := c.Break(t.ctx, name, o); err != nil {
		t.Fatalf("break: %v", err)
	}
	if !t.comes(func() bool { return !term.Valid() || term.Check(t.ctx) != nil }) {
		t.Errorf("leads although its term was broken")
	}
	next := t.leads(b.Election(name), "")
	left := in.enters("the second", next)
	t.is(context.Cause(term.Context()), holdfast.ErrBroken, "why the term ended")
	left()
	cancel()
	t.resigns(next)
	t.await(one, "the first leader's end")
}
