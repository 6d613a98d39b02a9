package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var orderCases = []Case{
	{
		ID: "W3.1", Rule: "Places of several clients are granted in the order of their arrival.",
		Needs: NeedQueue, Quick: true, Func: orderOfPlaces,
		Kills: []string{"owner is the client", "missed wake-up", "silent hand-over", "wrong addressee"},
	},
	{
		ID: "W3.2", Rule: "Waiting clients get the name in the order in which they came.",
		Needs: NeedFair, Func: orderOfClients,
		Kills: []string{"missed wake-up", "silent hand-over"},
	},
	{
		ID: "W3.3", Rule: "A dead waiter ahead costs its claim window, not a TTL.",
		Needs: NeedQueue | NeedLease, Func: deadWaiter,
		Kills: []string{"owner is the client", "missed wake-up", "no moving on"},
	},
	{
		ID: "W3.4", Rule: "When a holder dies, the next waiter's beat moves the queue on; three dead ones in a row cost three windows.",
		Needs: NeedQueue | NeedLease, Func: deadHolders,
		Kills: []string{"no owner compare", "owner is the client", "missed wake-up", "no moving on"},
	},
	{
		ID: "W3.5", Rule: "An attempt without a place does not overtake those who wait, not even when the holder has lapsed.",
		Needs: NeedQueue | NeedLease, Func: noOvertaking,
		Kills: []string{"no owner compare", "asking extends", "try takes a place", "missed wake-up"},
	},
	{
		ID: "W3.6", Rule: "A waiter that lives keeps its place however long the holder takes.",
		Needs: NeedFair | NeedPatience, Func: longHolder,
		Kills: []string{"empty renew", "silent hand-over", "no moving on"},
	},
	{
		ID: "W3.7", Rule: "A place of which nothing was heard for a minute is in nobody's way.",
		Needs: NeedQueue | NeedPatience, Func: silentPlace,
		Kills: []string{"owner is the client", "missed wake-up", "silent hand-over", "no moving on", "immortal places"},
	},
}

func orderOfPlaces(t *T) {
	peers := []*peer{t.peer(), t.peer(), t.peer()}
	n := t.Name()
	h := peers[0].granted(n)
	var places []driver.Ref
	for i := range 6 {
		p := peers[(i*2)%3]
		places = append(places, p.place(n))
		if got := p.beats(places[i]); got.Status != driver.Waiting || got.Queue.Ahead > i {
			t.Errorf("place %d: status %d with %d ahead", i, got.Status, got.Queue.Ahead)
		}
	}
	holder := peers[0]
	for i, place := range places {
		holder.frees(h)
		holder = peers[(i*2)%3]
		h = holder.told(place)
		for j, later := range places[i+1:] {
			if s := peers[((i+1+j)*2)%3].grantSignals(later.Owner); len(s) != 0 {
				t.Errorf("place %d was granted before place %d ended", i+1+j, i)
			}
		}
	}
	holder.frees(h)
}

func orderOfClients(t *T) {
	name := t.LockName()
	first := t.locks(t.Client(), name, nil)
	var ws []*waiting
	for range 4 {
		c, line := t.linked()
		ws = append(ws, t.waiting(t.ctx, c, name, nil))
		line.waits()
	}
	begin := time.Now()
	t.frees(first)
	for i, w := range ws {
		l := t.wins(w)
		for j, later := range ws[i+1:] {
			select {
			case <-later.done:
				t.Errorf("waiter %d was in before waiter %d left", i+1+j, i)
			default:
			}
		}
		t.frees(l)
	}
	t.prompt(begin, "four hand-overs")
}

func deadWaiter(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	b.place(n, claiming(t.TTL())) // and is never heard of again
	second := a.place(n)
	begin := time.Now()
	a.frees(h)
	next := a.moved(second)
	if took := time.Since(begin); took > longTTL/2 {
		t.Errorf("the dead waiter cost %v, its claim window is %v", took, t.TTL())
	}
	a.frees(next)
	b.frees(b.granted(n))
}

func deadHolders(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(t.Steady())) // dies
	a.place(n, claiming(t.TTL()))          // dies
	a.place(n, claiming(t.TTL()))          // dies
	last := b.place(n)
	next := b.moved(last)
	t.notBefore(h, next, t.Steady())
	a.keeps(h.Ref, driver.Lost, "the dead holder")
	b.keeps(next.Ref, driver.Renewed, "the waiter behind the dead")
	b.frees(next)
	a.frees(a.granted(n))
}

func noOvertaking(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(t.Steady()))
	place := b.place(n)
	c := t.peer()
	t.eventually("the holder lapses", func() bool {
		if x, res := c.ask(n); res.Status == driver.Granted {
			c.frees(x)
			t.Fatalf("an attempt overtook the waiter")
		}
		return a.renewed(h.Ref, 0).Status == driver.Lost
	})
	c.refused(n, "beside a waiter, with a holder that has lapsed")
	next := b.moved(place)
	c.refused(n, "beside the waiter that got the name")
	b.frees(next)
	c.frees(c.granted(n))
}

func longHolder(t *T) {
	a, c := t.Client(), t.Client()
	b, line := t.linked()
	name := t.LockName()
	l := t.locks(a, name, nil)
	w := t.waiting(t.ctx, b, name, nil)
	line.waits()
	for range 30 {
		t.pause(10 * time.Second) // no place lives so long without a word
		ctx, cancel := context.WithTimeout(t.ctx, 100*time.Millisecond)
		_, err := c.Acquire(ctx, name, nil)
		cancel()
		t.is(err, holdfast.ErrHeld, "one who comes and goes")
	}
	rival := t.waiting(t.ctx, c, name, nil)
	t.pause(time.Second)
	t.frees(l)
	won := t.wins(w)
	select {
	case <-rival.done:
		t.Errorf("the later one got the name first")
	default:
	}
	t.frees(won)
	t.frees(t.wins(rival))
}

func silentPlace(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	silent := b.place(n)
	live := a.place(n)
	for range 60 {
		t.pause(time.Second)
		a.keeps(h.Ref, driver.Renewed, "the holder")
		if res := a.beats(live); res.Status != driver.Waiting {
			t.Fatalf("the live place: status %d", res.Status)
		}
	}
	a.frees(h)
	a.frees(a.told(live))
	if res := b.beats(silent); res.Status != driver.Gone {
		t.Errorf("beat of a place that has lapsed: status %d, want gone", res.Status)
	}
	b.frees(b.granted(n))
}
