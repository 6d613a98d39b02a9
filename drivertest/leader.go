package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
)

func leaderIsKnown(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	asks := func(want string, term *holdfast.Term) {
		for _, c := range []*holdfast.Client{a, b} {
			l, err := c.Election(name).Leader(t.ctx)
			switch {
			case err != nil:
				t.Errorf("leader: %v", err)
			case term == nil && !l.None():
				t.Errorf("%q leads, and should not", l.Value)
			case term != nil && (l.Value != want || l.Token != term.Token() || l.Owner != term.Owner()):
				t.Errorf("leader %+v, want %q with token %d", l, want, term.Token())
			}
		}
	}
	asks("", nil)
	for _, value := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		term := t.leads(a.Election(name), value)
		asks(value, term)
		if err := term.Proclaim(t.ctx, "draining"); err != nil {
			t.Errorf("proclaim: %v", err)
		}
		asks("draining", term)
		t.resigns(term)
		t.is(term.Proclaim(t.ctx, "back"), holdfast.ErrReleased, "proclaim after the term")
		asks("", nil)
		a, b = b, a
	}
}

// observes reads an election in the background.
func (t *T) observes(e *holdfast.Election) <-chan holdfast.Leader {
	ctx, cancel := context.WithCancel(t.ctx)
	seen := make(chan holdfast.Leader, 256)
	done := t.Go(func() {
		for l, err := range e.Observe(ctx) {
			if err != nil {
				t.Errorf("observe: %v", err)
			}
			seen <- l
		}
	})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return seen
}

// sees waits until an observer has seen a value, or nobody for "".
func (t *T) sees(seen <-chan holdfast.Leader, value string) holdfast.Leader {
	for limit := time.After(liveness); ; {
		select {
		case l := <-seen:
			if l.Value == value && l.None() == (value == "") {
				return l
			}
		case <-limit:
			t.Fatalf("the observer has not seen %q", value)
		}
	}
}

// leadersAreSeen is B152.
func leadersAreSeen(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	seen := t.observes(b.Election(name))
	t.sees(seen, "")
	for _, who := range []string{"a", "b"} {
		term := t.leads(a.Election(name), who)
		if l := t.sees(seen, who); l.Token != term.Token() || l.Owner != term.Owner() {
			t.Errorf("seen %+v, want token %d", l, term.Token())
		}
		if err := term.Proclaim(t.ctx, who+", still"); err != nil {
			t.Errorf("proclaim: %v", err)
		}
		t.sees(seen, who+", still")
		t.sees(t.observes(a.Election(name)), who+", still") // comes late
		t.resigns(term)
		t.sees(seen, "")
	}
}
