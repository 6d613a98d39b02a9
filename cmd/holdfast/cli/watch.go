package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
)

// How often watch looks, and the distance of two looks from which it says that
// it may have missed something: nothing that stays for a second escapes it.
const (
	watchEvery = 250 * time.Millisecond
	watchGap   = time.Second
)

func (a *app) watchMain(args []string) int {
	var c common
	prefix, code, ok := a.parsePrefix(args, &c)
	if !ok {
		return code
	}
	signals := catchSignals()
	defer signals.stop()
	ctx, done := signals.context()
	defer done()
	client, err := a.openToLook(ctx, &c)
	if err != nil {
		return a.fail(err)
	}
	defer func() { _ = client.Close() }() // it holds nothing
	w := watcher{print: a.printChange}
	for ctx.Err() == nil && !a.out.failed() {
		records, err := list(ctx, client, prefix)
		if errors.Is(err, holdfast.ErrUnsupported) || errors.Is(err, holdfast.ErrInvalid) {
			return a.fail(err)
		}
		if ctx.Err() == nil {
			w.look(time.Now(), records, err)
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
		}
	}
	return exitOK
}

// change is one thing that happened.
type change struct {
	Event  string      `json:"event"` // held (at the start), acquired, released, broken, value (another one), gap, error
	Time   time.Time   `json:"time"`
	Name   string      `json:"name,omitempty"`
	Holder *holderJSON `json:"holder,omitempty"`
	Gap    int64       `json:"gap_ms,omitempty"`
	Error  string      `json:"error,omitempty"`

	holder *holdfast.Holder
	gap    time.Duration
}

// grant is what two looks are compared by.
type grant struct {
	name, owner string
	token       uint64
}

// watcher turns looks at the list into changes.
type watcher struct {
	print  func(*change)
	before map[grant]holdfast.Holder
	last   time.Time // of the last good look
	failed bool      // the last look was an error, which was told
}

// look compares a look at the store with the one before.
func (w *watcher) look(now time.Time, records []holdfast.Record, err error) {
	if err != nil {
		if !w.failed {
			w.print(&change{Event: "error", Time: now, Error: err.Error()})
		}
		w.failed = true
		return
	}
	if gap := now.Sub(w.last); !w.last.IsZero() && (gap > watchGap || w.failed) {
		w.print(&change{Event: "gap", Time: now, Gap: gap.Milliseconds(), gap: gap})
	}
	first := w.last.IsZero()
	w.last, w.failed = now, false
	seen := map[grant]holdfast.Holder{}
	for i := range records {
		r := &records[i]
		for _, h := range r.Holders {
			seen[w.grant(r.Name, &h)] = h
		}
	}
	for _, g := range sorted(w.before) {
		if _, still := seen[g]; !still {
			w.tell("released", now, g, w.before[g])
		}
	}
	for _, g := range sorted(seen) {
		h := seen[g]
		switch was, known := w.before[g]; {
		case first:
			w.tell("held", now, g, h)
		case !known:
			w.tell("acquired", now, g, h)
		default:
			w.tellChanges(now, g, was, h)
		}
	}
	w.before = seen
}

// tellChanges tells what is new about a grant that was there before.
func (w *watcher) tellChanges(now time.Time, g grant, was, h holdfast.Holder) {
	if h.Value != was.Value {
		w.tell("value", now, g, h)
	}
	if h.Broken != "" && was.Broken == "" {
		w.tell("broken", now, g, h)
	}
}

// grant names a hold. One of which the store had not learned the token when it was
// seen first is still the same.
func (w *watcher) grant(name string, h *holdfast.Holder) grant {
	g, before := grant{name, h.Owner, h.Token}, grant{name, h.Owner, 0}
	if was, known := w.before[before]; known && h.Owner != "" {
		delete(w.before, before)
		w.before[g] = was
	}
	return g
}

func (w *watcher) tell(event string, now time.Time, g grant, h holdfast.Holder) {
	j := newHolderJSON(&h)
	w.print(&change{Event: event, Time: now, Name: g.name, Holder: &j, holder: &h})
}

// sorted gives grants by name, and of one name the oldest first.
func sorted(m map[grant]holdfast.Holder) []grant {
	var gs []grant
	for g := range m {
		gs = append(gs, g)
	}
	slices.SortFunc(gs, func(x, y grant) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.token, y.token), cmp.Compare(x.owner, y.owner))
	})
	return gs
}

func (a *app) printChange(c *change) {
	if a.json {
		a.print(c)
		return
	}
	at := c.Time.Format("15:04:05.000")
	switch c.Event {
	case "gap":
		fmt.Fprintf(a.out, "%s gap of %s: changes may be missing\n", at, short(c.gap))
	case "error":
		fmt.Fprintf(a.out, "%s cannot see: %s\n", at, printable(c.Error))
	default:
		fmt.Fprintf(a.out, "%s %-8s %s  %s\n", at, c.Event, printable(c.Name), describeHolder(c.holder))
	}
}
