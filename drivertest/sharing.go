package drivertest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var sharingCases = []Case{
	{
		ID: "W5.1", Rule: "Many goroutines of one client that wait for one name cost the store one waiter.",
		Func: oneWaiterPerClient, About: AboutClient,
		Kills: []string{"missed wake-up", "silent hand-over"},
	},
	{
		ID: "W5.2", Rule: "A client whose goroutines want a name all the time does not keep it from another client.",
		Needs: NeedFair, Func: boundedTurn, About: AboutClient,
	},
	{
		ID: "W5.3", Rule: "Goroutines of one client get the name in the order in which they came.",
		Needs: NeedPatience, Func: orderWithin, About: AboutClient,
	},
	{
		ID: "W6.1", Rule: "A waiting writer stops new readers, whether they try or wait.",
		Needs: NeedQueue | NeedShared, Quick: true, Func: writerStopsReaders,
		Kills: []string{"try takes a place", "missed wake-up", "silent hand-over", "barging", "reader past writer"},
	},
	{
		ID: "W6.2", Rule: "A writer gets in although readers overlap without a gap.",
		Needs: NeedShared, Func: overlappingReaders,
		Kills: []string{"missed wake-up", "silent hand-over", "reader past writer"},
	},
	{
		ID: "W6.3", Rule: "When a waiting writer gives up, readers flow again.",
		Needs: NeedShared, Func: writerGivesUp,
		Kills: []string{"ghost waiter", "try takes a place", "barging", "reader past writer"},
	},
	{
		ID: "W6.4", Rule: "A request for few permits does not overtake one for many.",
		Needs: NeedQueue | NeedPermits, Quick: true, Func: permitsInOrder,
		Kills: []string{
			"permit leak", "one permit too many", "try takes a place", "missed wake-up", "silent hand-over", "barging",
			"permits out of order",
		},
	},
}

func oneWaiterPerClient(t *T) {
	a, c := t.Client(), t.Client()
	b, line := t.linked()
	name := t.LockName()
	l := t.locks(a, name, nil)
	var ws []*waiting
	for range 50 {
		ws = append(ws, t.waiting(t.ctx, b, name, nil))
	}
	t.pause(t.TTL() / 2)
	if n := line.count(opAcquire); t.h.has(line.Store)&(NeedQueue|NeedBlock) != 0 && n > 4 {
		t.Errorf("%d attempts for 50 waiters of one client", n)
	}
	if n := line.count(opBlock); n > 1 {
		t.Errorf("%d waits in the store for 50 waiters of one client", n)
	}
	begin := time.Now()
	t.frees(l)
	var got atomic.Int32
	for _, w := range ws {
		t.Go(func() {
			t.frees(t.wins(w))
			got.Add(1)
		})
	}
	t.eventually("all are served", func() bool { return got.Load() == 50 })
	t.prompt(begin, "fifty hand-overs")
	t.frees(t.opens(c, name, nil))
}

func boundedTurn(t *T) {
	busy, other := t.Client(), t.Client()
	name := t.LockName()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	var turns atomic.Int64
	for range 8 {
		t.Go(func() {
			for ctx.Err() == nil {
				if l, err := busy.Acquire(ctx, name, nil); err == nil {
					turns.Add(1)
					t.frees(l)
				}
			}
		})
	}
	for range 3 {
		before := turns.Load()
		l := t.locks(other, name, nil)
		// A turn is at most 255; the one that runs when we come may be followed
		// by no other. The rest is for what happens while we are told.
		if n := turns.Load() - before; n > 4*255 {
			t.Errorf("%d grants to the other client while we waited", n)
		}
		t.frees(l)
	}
}

func orderWithin(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	var ws []*waiting
	for range 10 {
		ws = append(ws, t.waiting(t.ctx, b, name, nil))
		t.pause(time.Millisecond) // on a bubble's clock: until all are parked
	}
	t.frees(l)
	for i, w := range ws {
		l = t.wins(w)
		for j, later := range ws[i+1:] {
			select {
			case <-later.done:
				t.Errorf("goroutine %d was in before %d left", i+1+j, i)
			default:
			}
		}
		t.frees(l)
	}
}

func writerStopsReaders(t *T) {
	a, b := t.peers()
	n := t.Name()
	r := a.granted(n, shared)
	w := b.place(n)
	a.refused(n, "a new reader while a writer waits", shared)
	late := a.place(n, shared)
	a.keeps(r.Ref, driver.Renewed, "the reader that was there")
	a.frees(r)
	hw := b.told(w)
	if res := a.beats(late); res.Status != driver.Waiting {
		t.Errorf("the reader behind the writer: status %d, want waiting", res.Status)
	}
	b.frees(hw)
	a.frees(a.told(late))
	b.frees(b.granted(n))
}

func overlappingReaders(t *T) {
	name := t.LockName()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	var reading atomic.Int32
	for i, c := range []*holdfast.Client{t.Client(), t.Client(), t.Client()} {
		t.Go(func() {
			t.pause(time.Duration(i) * 10 * time.Millisecond)
			for ctx.Err() == nil {
				l, err := c.Acquire(ctx, name, &holdfast.AcquireOptions{Mode: holdfast.Shared})
				if err != nil {
					continue
				}
				reading.Add(1)
				t.pause(30 * time.Millisecond) // longer than the others' gaps
				t.frees(l)
			}
		})
	}
	t.eventually("the readers are in", func() bool { return reading.Load() >= 3 })
	w, begin := t.Client(), time.Now()
	for range 3 {
		t.frees(t.locks(w, name, nil))
	}
	t.prompt(begin, "three writes between readers")
}

func writerGivesUp(t *T) {
	a, b := t.Client(), t.Client()
	c := t.Client()
	name := t.LockName()
	o := &holdfast.AcquireOptions{Mode: holdfast.Shared}
	r := t.locks(a, name, o)
	ctx, cancel := context.WithCancel(t.ctx)
	w := t.waiting(ctx, b, name, nil)
	t.eventually("the writer stops new readers", func() bool {
		l, err := c.TryAcquire(t.ctx, name, o)
		if err == nil {
			t.frees(l)
		}
		return err != nil
	})
	reader := t.waiting(t.ctx, c, name, o)
	t.pause(t.TTL() / 10)
	cancel()
	t.await(w.done, "the writer")
	t.is(w.err, context.Canceled, "the writer")
	t.frees(t.wins(reader)) // while the first still reads
	t.frees(t.gets(c, name, o))
	t.frees(r)
	t.frees(t.opens(b, name, nil))
}

func permitsInOrder(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, permits(2, 3))
	many, few := b.place(n, permits(3, 3)), a.place(n, permits(1, 3))
	b.refused(n, "an attempt for one permit while three are waited for", permits(1, 3))
	if res := a.beats(few); res.Status != driver.Waiting {
		t.Errorf("the small request: status %d, want waiting", res.Status)
	}
	a.frees(h)
	hm := b.told(many)
	if res := a.beats(few); res.Status != driver.Waiting {
		t.Errorf("the small request beside the large: status %d, want waiting", res.Status)
	}
	b.frees(hm)
	a.frees(a.told(few))
	b.frees(b.granted(n, permits(3, 3)))
}
