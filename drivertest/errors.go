package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var errorCases = []Case{
	{
		ID: "E1.1", Rule: "An error that the driver does not know is indeterminate, and one of a context is never called an outage or a refusal.",
		Func:  classify,
		Kills: []string{"errors are outages"},
	},
	{
		ID: "E1.2", Rule: "Errors name the operation, the lock and the store, and who holds it where the store tells.",
		Func: errorsTell, About: AboutClient,
	},
	{
		ID: "E1.3", Rule: "Busy and down are told apart, also when a wait ran out, and the store's own error can be reached.",
		Func: downIsNotBusy, About: AboutClient,
	},
	{
		ID: "E1.4", Rule: "What the store cannot do is refused with ErrUnsupported, and nothing is taken.",
		Quick: true, Func: unsupported, About: AboutClient,
	},
	{
		ID: "E1.5", Rule: "New fails if the store promises less than is required, and leaves the store to the caller.",
		Func: require, About: AboutInput,
	},
}

func classify(t *T) {
	a, b := t.peers()
	for _, p := range []*peer{a, b} {
		for _, err := range []error{errors.New("no store has heard of this"), fmt.Errorf("wrapped: %w", io.ErrUnexpectedEOF)} {
			if kind := p.Classify(err); kind != driver.Indeterminate {
				t.Errorf("%v is %v, want indeterminate", err, kind)
			}
		}
		for _, err := range []error{context.Canceled, context.DeadlineExceeded, fmt.Errorf("wrapped: %w", context.Canceled)} {
			if kind := p.Classify(err); kind != driver.Canceled && kind != driver.Indeterminate {
				t.Errorf("%v is %v, want canceled or indeterminate", err, kind)
			}
		}
		unavailable := &driver.Failure{Kind: driver.Unavailable, Err: errDown}
		if kind := p.Classify(fmt.Errorf("wrapped: %w", unavailable)); kind != driver.Unavailable && kind != driver.Indeterminate {
			t.Errorf("a Failure is %v, want unavailable", kind)
		}
	}
}

func errorsTell(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{Label: "the first"})
	_, err := b.TryAcquire(t.ctx, name, nil)
	e, ok := errors.AsType[*holdfast.Error](err)
	if !ok {
		t.Fatalf("%T, want *holdfast.Error", err)
	}
	if e.Name != name || e.Store != t.props.Store || e.Op == "" || e.Error() == "" {
		t.Errorf("error is %+v", *e)
	}
	if h := e.Holder; h != nil && h.Owner != "" && h.Owner != l.Owner() {
		t.Errorf("the holder is %q, the error names %q", l.Owner(), h.Owner)
	}
	t.frees(l)
}

func downIsNotBusy(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	l := t.locks(b, name, nil)
	bad.all(down)
	_, err := a.TryAcquire(t.ctx, name, nil)
	t.is(err, holdfast.ErrUnavailable, "an attempt while the store is down")
	t.is(err, errDown, "the store's own error")
	if errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("an outage is called busy: %v", err)
	}
	_, err = a.Acquire(t.ctx, name, &holdfast.AcquireOptions{Wait: t.TTL()})
	t.is(err, holdfast.ErrTimeout, "a wait while the store is down")
	t.is(err, holdfast.ErrUnavailable, "a wait while the store is down")
	if errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("an outage is called busy: %v", err)
	}
	bad.heal()
	t.frees(l)
	t.frees(t.opens(a, name, nil))
}

func unsupported(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	p := t.props
	refuses := func(ability string, has bool, f func() error) {
		if has {
			return
		}
		if err := f(); !errors.Is(err, holdfast.ErrUnsupported) {
			t.Errorf("without %s: %v, want ErrUnsupported", ability, err)
		}
	}
	refuses("shared", p.Shared, func() error {
		_, err := a.TryAcquire(t.ctx, name, &holdfast.AcquireOptions{Mode: holdfast.Shared})
		return err
	})
	refuses("permits", p.Permits, func() error {
		_, err := a.TryAcquire(t.ctx, name, &holdfast.AcquireOptions{Permits: 1, Limit: 2})
		return err
	})
	l := t.gets(b, name, nil) // nothing was taken
	refuses("handles", p.Handles, func() error { _, err := l.Handle(); return err })
	refuses("handles", p.Handles, func() error { _, err := a.Adopt(t.ctx, "anything"); return err })
	refuses("break", p.Break, func() error {
		return a.Break(t.ctx, name, holdfast.BreakOptions{Owner: l.Owner(), Reason: "test"})
	})
	refuses("inspect", p.Inspect, func() error { _, err := a.Inspect(t.ctx, name); return err })
	refuses("list", p.List, func() error {
		for _, err := range a.List(t.ctx, "") {
			return err
		}
		return nil
	})
	if !p.Fencing && l.Token() != 0 {
		t.Errorf("a token %d from a store that cannot give one", l.Token())
	}
	if !l.Valid() {
		t.Errorf("what was refused cost the lease")
	}
	t.frees(l)
}

func require(t *T) {
	store := t.peer()
	for _, r := range []struct {
		holdfast.Require
		has bool
	}{
		{holdfast.Require{Class: holdfast.ClassA}, t.props.Class >= holdfast.ClassA},
		{holdfast.Require{Class: t.props.Class + 1}, false},
		{holdfast.Require{Class: t.props.Class}, true},
		{holdfast.Require{Fencing: true}, t.props.Fencing},
		{holdfast.Require{Fair: true}, t.props.Fair},
	} {
		if r.has || r.Class > holdfast.ClassA {
			continue
		}
		_, err := holdfast.New(store.Store, &holdfast.Options{Require: r.Require})
		if err == nil {
			t.Errorf("New does not mind that the store promises less than %+v", r.Require)
		}
	}
	if _, err := holdfast.New(store.Store, &holdfast.Options{Prefix: "not/allowed"}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("New with a bad prefix: %v, want ErrInvalid", err)
	}
	// The store is still ours, and open.
	n := t.Name()
	store.frees(store.granted(n))
	other := t.peer()
	other.frees(other.granted(n))
}
