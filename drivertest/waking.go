package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var wakingCases = []Case{
	{
		ID: "W4.1", Rule: "One release tells one waiter, and tells it once.",
		Needs: NeedQueue, Quick: true, Func: oneWakeUp,
		Kills: []string{"owner is the client", "ghost waiter", "missed wake-up", "silent hand-over", "told twice", "wrong addressee"},
	},
	{
		ID: "W4.2", Rule: "A writer's release wakes the run of readers at the head, and not the writer behind them.",
		Needs: NeedQueue | NeedShared, Func: runOfReaders,
		Kills: []string{"owner is the client", "reader beside writer", "missed wake-up", "silent hand-over", "wrong addressee"},
	},
	{
		ID: "W4.3", Rule: "Freed permits wake as many waiters at the head as they satisfy.",
		Needs: NeedQueue | NeedPermits, Func: runOfPermits,
		Kills: []string{"permit leak", "missed wake-up", "silent hand-over", "wrong addressee"},
	},
	{
		ID: "W4.4", Rule: "Two clients that hand a name to and fro never miss a wake-up.",
		Func:  toAndFro,
		Kills: []string{"missed wake-up", "silent hand-over"},
	},
	{
		ID: "W4.5", Rule: "A waiter for several permits gets in when the last of them is freed.",
		Needs: NeedPermits, Func: severalPermits,
		Kills: []string{"permit leak", "missed wake-up", "silent hand-over"},
	},
	{
		ID: "W4.6", Rule: "What a lost message would have said, the next beat says, with the same token.",
		Needs: NeedQueue, Func: beatMakesUp,
		Kills: []string{"missed wake-up", "silent hand-over"},
	},
}

func oneWakeUp(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	var places []driver.Ref
	for i := range 6 {
		places = append(places, []*peer{a, b}[i%2].place(n))
	}
	a.frees(h)
	h = a.told(places[0])
	// The second one's signal comes after all that the first release caused.
	a.frees(h)
	next := b.told(places[1])
	for i, place := range places {
		signals := len(a.grantSignals(place.Owner)) + len(b.grantSignals(place.Owner))
		if want := max(0, min(1, 2-i)); signals != want {
			t.Errorf("place %d was told %d times after two releases, want %d", i, signals, want)
		}
	}
	for i, place := range places[2:] {
		[]*peer{a, b}[i%2].abandoned(place)
	}
	b.frees(next)
	a.frees(a.granted(n))
}

func runOfReaders(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	r1, r2 := a.place(n, shared), b.place(n, shared)
	w := a.place(n)
	r3 := b.place(n, shared)
	a.frees(h)
	h1, h2 := a.told(r1), b.told(r2) // both, though neither has released
	if res := a.beats(w); res.Status != driver.Waiting {
		t.Errorf("the writer behind the readers: status %d, want waiting", res.Status)
	}
	if res := b.beats(r3); res.Status != driver.Waiting {
		t.Errorf("the reader behind the writer: status %d, want waiting", res.Status)
	}
	a.frees(h1)
	b.frees(h2)
	hw := a.told(w)
	if res := b.beats(r3); res.Status != driver.Waiting {
		t.Errorf("a reader beside the writer: status %d, want waiting", res.Status)
	}
	a.frees(hw)
	b.frees(b.told(r3))
	a.frees(a.granted(n))
}

func runOfPermits(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, permits(4, 4))
	p1, p2 := a.place(n, permits(1, 4)), b.place(n, permits(2, 4))
	p3, p4 := a.place(n, permits(2, 4)), b.place(n, permits(1, 4))
	a.frees(h)
	h1, h2 := a.told(p1), b.told(p2)
	if res := a.beats(p3); res.Status != driver.Waiting {
		t.Errorf("two permits of one: status %d, want waiting", res.Status)
	}
	if res := b.beats(p4); res.Status != driver.Waiting {
		t.Errorf("the one behind was let past: status %d, want waiting", res.Status)
	}
	a.frees(h1) // two are free now
	h3 := a.told(p3)
	b.frees(h2)
	h4 := b.told(p4)
	a.frees(h3)
	b.frees(h4)
	b.frees(b.granted(n, permits(4, 4)))
}

func toAndFro(t *T) {
	name, in := t.LockName(), &room{t: t, limit: 1}
	begin := time.Now()
	t.crowd(2, t.clients(2), func(_ int, c *holdfast.Client) {
		for range 50 {
			l := t.locks(c, name, nil) // bounded: a missed wake-up fails it
			in.visit(1)
			t.frees(l)
		}
	})
	t.prompt(begin, "a hundred hand-overs")
}

func severalPermits(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	of3 := func(n int) *holdfast.AcquireOptions { return &holdfast.AcquireOptions{Permits: n, Limit: 3} }
	both := t.locks(a, name, of3(3))
	w := t.waiting(t.ctx, b, name, of3(2))
	t.pause(t.TTL() / 10)
	begin := time.Now()
	t.frees(both)
	two := t.wins(w)
	one := t.locks(c, name, of3(1))
	w = t.waiting(t.ctx, a, name, of3(3))
	t.frees(two)
	select {
	case <-w.done:
		t.Errorf("three permits while one is held: %v", w.err)
	default:
	}
	t.frees(one)
	t.frees(t.wins(w))
	t.prompt(begin, "the wait for permits")
	t.frees(t.gets(c, name, of3(3)))
}

func beatMakesUp(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	place := b.place(n)
	if res := b.beats(place); res.Status != driver.Waiting {
		t.Errorf("beat of a waiting place: status %d", res.Status)
	}
	a.frees(h)
	signalled := b.told(place)
	res := b.beats(place)
	if res.Status != driver.Granted || res.Grant.Token != signalled.Token {
		t.Errorf("beat: status %d, token %d; the signal said granted, %d", res.Status, res.Grant.Token, signalled.Token)
	}
	if w := signalled.grant.Window; res.Grant.Window > w {
		t.Errorf("beat: window %v, the signal said %v", res.Grant.Window, w)
	}
	b.keeps(signalled.Ref, driver.Renewed, "the claim")
	b.frees(signalled)
	a.frees(a.granted(n))
}
