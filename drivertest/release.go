package drivertest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var releaseCases = []Case{
	{
		ID: "G6.1", Rule: "A second release, from any goroutine, gives the first one's answer and does not free the next holder.",
		Quick: true, Func: releaseTwice, About: AboutClient,
	},
	{
		ID: "G6.2", Rule: "A release frees although the caller's context has ended.",
		Quick: true, Func: releaseAfterContext, About: AboutClient,
	},
	{
		ID: "G6.3", Rule: "A release that finds the store away goes on in the background, and frees when the store is back.",
		Func: releaseWhileDown, About: AboutClient,
	},
	{
		ID: "G6.4", Rule: "MinHold keeps the name taken after a release that comes sooner.",
		Needs: NeedLease, Func: minHold,
		Kills: []string{"keep ignored", "no moving on"},
	},
	{
		ID: "G6.5", Rule: "A release that keeps the name leaves it to nobody for that long, and then to the next.",
		Needs: NeedLease, Func: releaseKeeps,
		Kills: []string{"keep ignored", "try takes a place"},
	},
	{
		ID: "G6.6", Rule: "Do returns what the function returned, releases also when it panics, and says when the lease was lost under it.",
		Func:  doReleases,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "G6.7", Rule: "A lease that was dropped without a release stays held.",
		Func:  dropped,
		Kills: []string{"empty renew", "try takes a place"},
	},
}

func releaseTwice(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	t.await(t.Go(func() { t.frees(l) }), "a release by another goroutine")
	t.ends(l, holdfast.ErrReleased)
	next := t.gets(b, name, nil)
	t.frees(l)
	t.is(l.Check(t.ctx), holdfast.ErrReleased, "Check after the release")
	t.is(l.Renew(t.ctx, t.TTL()), holdfast.ErrReleased, "Renew after the release")
	t.busy(a, name, nil, "after the second release")
	if err := next.Check(t.ctx); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	t.frees(next)
}

func releaseAfterContext(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	ctx, cancel := context.WithCancel(t.ctx)
	l, err := a.Acquire(ctx, name, nil)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	cancel()
	if err = l.Release(ctx); err != nil {
		t.Errorf("release with an ended context: %v", err)
	}
	t.frees(t.opens(b, name, nil))
	t.is(context.Cause(l.Context()), holdfast.ErrReleased, "cause")
}

func releaseWhileDown(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Long()}) // it cannot lapse meanwhile
	bad.all(down)
	ctx, cancel := context.WithTimeout(t.ctx, t.TTL())
	defer cancel()
	// Whether it says so or not, the work's result must not depend on it.
	if err := l.Release(ctx); err != nil && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrIndeterminate) {
		t.Errorf("release while the store is down: %v", err)
	}
	if l.Valid() {
		t.Errorf("still valid after the release")
	}
	t.busy(b, name, nil, "before the release has reached the store")
	bad.heal()
	t.frees(t.locks(b, name, nil))
}

func minHold(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	sent := time.Now()
	l := t.locks(a, name, &holdfast.AcquireOptions{MinHold: 2 * t.TTL()})
	t.frees(l)
	t.is(context.Cause(l.Context()), holdfast.ErrReleased, "cause")
	t.busyUntil(sent.Add(2*t.TTL()), b, name, "within MinHold")
	t.busyUntil(sent.Add(2*t.TTL()), a, name, "within MinHold, the same client")
	next := t.locks(b, name, nil)
	if gap := time.Since(sent); gap < 2*t.TTL()-t.TTL()/50 {
		t.Errorf("granted after %v, MinHold is %v", gap, 2*t.TTL())
	}
	t.frees(next)
}

func releaseKeeps(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	sent := driver.Now()
	if !a.releases(&driver.ReleaseRequest{Ref: h.Ref, Keep: t.Steady()}) {
		t.Errorf("release of a live grant answered false")
	}
	a.keeps(h.Ref, driver.Lost, "a released grant that is kept")
	b.refused(n, "while the name is kept")
	next := b.obtains(n)
	if gap := next.got.Sub(sent); gap < t.Steady()-t.Steady()/100 {
		t.Errorf("granted %v after a release that keeps the name for %v", gap, t.Steady())
	}
	b.frees(next)
}

var errWork = errors.New("the work failed")

func doReleases(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	err := a.Do(t.ctx, name, nil, func(ctx context.Context, l *holdfast.Lease) error {
		t.busy(b, name, nil, "within Do")
		if ctx.Err() != nil || !l.Valid() {
			t.Errorf("the function's context ended: %v", ctx.Err())
		}
		return errWork
	})
	t.is(err, errWork, "Do")
	t.frees(t.gets(b, name, nil))
	func() {
		defer func() {
			if p := recover(); p != errWork { //nolint:errorlint // the very value must come through
				t.Errorf("Do panicked with %v", p)
			}
		}()
		_ = a.Do(t.ctx, name, nil, func(context.Context, *holdfast.Lease) error {
			panic(errWork) //nolint:forbidigo // what Do does with it is the question
		})
	}()
	t.frees(t.gets(b, name, nil))
	if t.props.Bound != driver.ByLease {
		return
	}
	err = a.Do(t.ctx, name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true}, func(ctx context.Context, _ *holdfast.Lease) error {
		<-ctx.Done()
		t.is(context.Cause(ctx), holdfast.ErrLost, "cause of the function's context")
		return nil
	})
	t.is(err, holdfast.ErrLost, "Do whose lease ran out")
	t.frees(t.locks(b, name, nil))
}

func dropped(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	func() { _ = t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Steady()}) }()
	for range 4 {
		runtime.GC()
		t.pause(t.Steady() / 3)
		t.busy(b, name, nil, "after a lease was dropped")
	}
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	t.frees(t.gets(b, name, nil))
}
