package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// inParallel is how many cases run at once. Most of them wait most of the
// time, so it does not follow the number of cores.
const inParallel = 8

// Testing is what Run needs of a *testing.T, so that a program that calls
// Check does not link package testing.
type Testing[T any] interface {
	Run(name string, f func(T)) bool
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Context() context.Context
}

// Run runs every case that applies to the store as a subtest of t, which is a
// *testing.T.
func Run[T Testing[T]](t T, h Harness) {
	t.Helper()
	RunIn(t, func() Harness { return h }, func(t T, f func(T)) { f(t) })
}

// RunIn is Run for a store that lives in a testing/synctest bubble: each case
// runs within wrap, which is synctest.Test, with a harness of its own, since
// nothing of one bubble may be seen in another.
func RunIn[T Testing[T]](t T, harness func() Harness, wrap func(T, func(T))) {
	t.Helper()
	h := harness()
	var has Need
	t.Run("promise", func(t T) {
		wrap(t, func(t T) {
			own := harness()
			var err error
			if has, err = own.promise(t.Context()); err != nil {
				t.Fatalf("%v", err)
			}
		})
	})
	cases := Cases()
	for id := range h.Skip {
		if !known(cases, id) {
			t.Errorf("Harness.Skip names %s, which is no case", id)
		}
	}
	limit := make(chan struct{}, inParallel)
	if h.Sequential {
		limit = make(chan struct{}, 1)
	}
	// Subtests from goroutines, not t.Parallel, which a bubble forbids and
	// whose limit is the number of cores.
	var wg sync.WaitGroup
	for i := range cases {
		if cases[i].Needs&^has != 0 {
			continue
		}
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			t.Run(cases[i].ID, func(t T) { wrap(t, func(t T) { runOne(t, harness(), &cases[i]) }) })
		})
	}
	wg.Wait()
}

func runOne[T Testing[T]](t T, h Harness, c *Case) {
	t.Helper()
	if reason := h.Skip[c.ID]; reason != "" {
		t.Skipf("%s", reason)
	}
	if err := c.run(t.Context(), &h); err != nil {
		t.Errorf("law %s: %s\n%v", c.Law, c.Rule, err)
	}
}

// Check runs the quick cases one after the other on a live store, tells each
// result, and returns what is wrong, joined.
func Check(ctx context.Context, h Harness, report func(Result)) error {
	has, err := h.promise(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range Cases() {
		if !c.Quick || c.Needs&^has != 0 {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		result := Result{ID: c.ID, Law: c.Law, Rule: c.Rule, Skipped: h.Skip[c.ID]}
		if result.Skipped == "" {
			result.Err = c.run(ctx, &h)
		}
		if result.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", c.ID, c.Rule, result.Err))
		}
		report(result)
	}
	return errors.Join(errs...)
}

// promise opens the store once, compares what it says of itself with its row
// in Stores, and returns what it has.
func (h *Harness) promise(ctx context.Context) (has Need, err error) {
	store, err := h.New(ctx)
	if err != nil {
		return 0, fmt.Errorf("opening the store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if signaler, ok := store.(driver.Signaler); ok {
		signaler.Listen(func(driver.Signal) {})
	}
	return h.has(store), keepsPromise(store)
}

func known(cases []Case, id string) bool {
	for i := range cases {
		if cases[i].ID == id {
			return true
		}
	}
	return false
}
