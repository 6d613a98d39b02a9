package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// watches runs a watch, and again one that ended by itself, until the case is
// over, and reads as package holdfast does: once for each change told.
func (p *peer) watches(n driver.Name) <-chan *driver.Holder {
	w, ok := p.Store.(driver.Watcher)
	if !ok {
		p.t.Fatalf("not a Watcher")
	}
	ctx, stop := context.WithCancel(p.t.ctx)
	bell, seen := make(chan struct{}, 1), make(chan *driver.Holder, 64)
	watching := p.t.Go(func() {
		for ctx.Err() == nil {
			_ = w.Watch(ctx, n, func() {
				select {
				case bell <- struct{}{}:
				default:
				}
			})
		}
	})
	reading := p.t.Go(func() {
		for {
			select {
			case <-bell:
				h, err := w.Leader(ctx, n)
				if err != nil {
					continue
				}
				select {
				case seen <- h:
				case <-ctx.Done(): // the case is over, and nobody looks
				}
			case <-ctx.Done():
				return
			}
		}
	})
	p.t.Cleanup(func() {
		stop()
		<-watching
		<-reading
	})
	return seen
}

// comesTo waits until a watch has told of a state.
func (t *T) comesTo(seen <-chan *driver.Holder, what string, is func(h *driver.Holder) bool) {
	for limit := time.After(liveness); ; {
		select {
		case h := <-seen:
			if is(h) {
				return
			}
		case <-limit:
			t.Fatalf("the watch did not tell of %s", what)
		}
	}
}

func nobody(h *driver.Holder) bool { return h == nil }

func saying(seq uint64, value string) func(*driver.Holder) bool {
	return func(h *driver.Holder) bool { return h != nil && h.Seq == seq && h.Value == value }
}

func watchTells(t *T) {
	a, b := t.peers()
	n := t.Name()
	seen := b.watches(n)
	t.comesTo(seen, "the free name", nobody)
	for range 3 {
		h := a.granted(n)
		t.comesTo(seen, "the grant", saying(0, ""))
		for seq := range uint64(3) {
			a.says(h.Ref, seq+1, fmt.Sprint("value ", seq), true, "the holder")
			t.comesTo(seen, "the value", saying(seq+1, fmt.Sprint("value ", seq)))
		}
		a.frees(h)
		t.comesTo(seen, "the release", nobody)
	}
	if t.props.Wait == driver.ByPlaces { // with a hand-over
		h, place := a.granted(n), b.place(n)
		a.frees(h)
		t.comesTo(seen, "the hand-over", func(l *driver.Holder) bool { return l != nil && l.Owner == place.Owner })
		b.frees(b.moved(place))
		t.comesTo(seen, "the release", nobody)
	}
}

func watchesApart(t *T) {
	a, b := t.peers()
	one, two := t.Name(), t.Name()
	longer := named(one.Full + "0") // the other's name is its beginning
	seen := []<-chan *driver.Holder{b.watches(one), b.watches(two), b.watches(longer), b.watches(one)}
	for _, s := range seen {
		t.comesTo(s, "the free name", nobody)
	}
	h, k := a.granted(two), a.granted(longer)
	t.comesTo(seen[1], "the grant", saying(0, ""))
	t.comesTo(seen[2], "the grant", saying(0, ""))
	g := a.granted(one)
	t.comesTo(seen[0], "the grant", func(l *driver.Holder) bool { return l != nil && l.Owner == g.Owner })
	t.comesTo(seen[3], "the grant", func(l *driver.Holder) bool { return l != nil && l.Owner == g.Owner })
	a.frees(g)
	t.comesTo(seen[0], "the release", nobody)
	a.frees(h)
	a.frees(k)
}
