package drivertest

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var breakCases = []Case{
	{
		ID: "L5.1", Rule: "A break needs the present holder's token or owner; with another one nothing changes.",
		Needs: NeedBreak, Quick: true, Func: breakNeedsHolder,
		Kills: []string{"try takes a place", "break of anybody"},
	},
	{
		ID: "L5.2", Rule: "A break revokes: the name is granted when the holder, who is told the reason, has released, and not before.",
		Needs: NeedBreak, Quick: true, Func: breakMarks,
		Kills: []string{"try takes a place", "break grants at once", "break untold"},
	},
	{
		ID: "L5.3", Rule: "A forced break grants at once, and the former holder's calls change nothing.",
		Needs: NeedBreak, Func: breakForced,
		Kills: []string{"no owner compare", "release by name"},
	},
	{
		ID: "L5.4", Rule: "A broken grant cannot be renewed any longer: if its holder never answers, the name is free when its window is over.",
		Needs: NeedBreak | NeedLease, Func: brokenRunsOut,
		Kills: []string{"no owner compare", "early end", "try takes a place", "break grants at once", "break untold"},
	},
	{
		ID: "L5.5", Rule: "The holder's context ends with ErrBroken and the reason; a waiter gets the name once the holder has released.",
		Needs: NeedBreak, Func: holderLearns,
		Kills: []string{"break grants at once", "break untold"},
	},
	{
		ID: "L5.6", Rule: "Breaking a free name is ErrNotHeld, and with a stale token it is ErrConflict.",
		Needs: NeedBreak, Func: breakErrors,
		Kills: []string{"token per process", "token reset on delete", "break of anybody"},
	},
}

// breaks asserts what a break answers.
func (p *peer) breaks(r *driver.BreakRequest, want driver.BreakStatus) {
	breaker, ok := p.Store.(driver.Breaker)
	if !ok {
		p.t.Fatalf("not a Breaker")
	}
	got, err := breaker.Break(p.t.ctx, r)
	if err != nil {
		p.t.Fatalf("break: %v", err)
	}
	if got != want {
		p.t.Errorf("break: status %d, want %d", got, want)
	}
}

func breakNeedsHolder(t *T) {
	a, b := t.peers()
	n := t.Name()
	b.breaks(&driver.BreakRequest{Name: n, Owner: newOwner(), Reason: "test"}, driver.NotHeld)
	h := a.granted(n)
	b.breaks(&driver.BreakRequest{Name: n, Owner: newOwner(), Reason: "test"}, driver.Mismatch)
	b.breaks(&driver.BreakRequest{Name: n, Owner: newOwner(), Reason: "test", Force: true}, driver.Mismatch)
	if t.props.Fencing {
		b.breaks(&driver.BreakRequest{Name: n, Token: h.Token - 1, Reason: "test"}, driver.Mismatch)
		b.breaks(&driver.BreakRequest{Name: n, Token: h.Token - 1, Reason: "test", Force: true}, driver.Mismatch)
	}
	a.keeps(h.Ref, driver.Renewed, "a holder whom nobody broke")
	b.refused(n, "after breaks of somebody else")
	a.frees(h)
	b.breaks(&driver.BreakRequest{Name: n, Owner: h.Owner, Reason: "test"}, driver.NotHeld)
}

func breakMarks(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	b.breaks(&driver.BreakRequest{Name: n, Owner: h.Owner, Reason: "host is burning"}, driver.Marked)
	b.refused(n, "after a break that was not answered")
	res := a.renewed(h.Ref, t.Long())
	if res.Status != driver.Broken || !strings.Contains(res.Reason, "host is burning") {
		t.Errorf("renewal of a broken grant: status %d, reason %q", res.Status, res.Reason)
	}
	b.refused(n, "after the holder was told")
	a.frees(h)
	next := b.granted(n)
	b.keeps(next.Ref, driver.Renewed, "the next grant, which nobody broke")
	b.frees(next)
}

func breakForced(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	r := &driver.BreakRequest{Name: n, Token: h.Token, Reason: "test", Force: true}
	if h.Token == 0 {
		r.Owner = h.Owner
	}
	b.breaks(r, driver.Freed)
	next := b.obtains(n)
	if status := a.renewed(h.Ref, t.Long()).Status; status == driver.Renewed {
		t.Errorf("a grant that was broken by force was renewed")
	}
	if a.released(h.Ref) {
		t.Errorf("a grant that was broken by force was released")
	}
	b.keeps(next.Ref, driver.Renewed, "the next grant")
	a.refused(n, "beside the next grant")
	b.frees(next)
}

func brokenRunsOut(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(t.Steady()))
	b.breaks(&driver.BreakRequest{Name: n, Owner: h.Owner, Reason: "test"}, driver.Marked)
	a.keeps(h.Ref, driver.Broken, "a broken grant")
	next := b.obtains(n)
	t.notBefore(h, next, t.Steady())
	a.keeps(h.Ref, driver.Lost, "a broken grant that ran out")
	b.frees(next)
}

func holderLearns(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	w := t.waiting(t.ctx, b, name, nil)
	o := holdfast.BreakOptions{Owner: l.Owner(), Reason: "host is burning", By: "ann"}
	if err := c.Break(t.ctx, name, o); err != nil {
		t.Fatalf("Break: %v", err)
	}
	t.ends(l, holdfast.ErrBroken)
	cause := context.Cause(l.Context())
	t.is(cause, holdfast.ErrLost, "cause")
	if !strings.Contains(cause.Error(), "host is burning") {
		t.Errorf("the cause does not name the reason: %v", cause)
	}
	if l.Valid() {
		t.Errorf("valid after the break")
	}
	begin := time.Now()
	t.pause(t.Steady() / 4)
	select {
	case <-w.done:
		if time.Since(begin) < t.Steady()/2 { // else the broken lease may have run out
			t.Errorf("granted to the waiter before the holder released")
		}
	default:
	}
	_ = l.Release(t.ctx) // the acknowledgment
	t.frees(t.wins(w))
	t.frees(t.opens(a, name, nil))
}

func breakErrors(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	o := holdfast.BreakOptions{Owner: strings.Repeat("0", 31) + "1", Reason: "test"}
	t.is(b.Break(t.ctx, name, o), holdfast.ErrNotHeld, "break of a free name")
	l := t.locks(a, name, nil)
	t.is(b.Break(t.ctx, name, o), holdfast.ErrConflict, "break of another owner")
	t.is(b.Break(t.ctx, name, holdfast.BreakOptions{Reason: "test"}), holdfast.ErrInvalid, "break of anybody")
	t.is(b.Break(t.ctx, name, holdfast.BreakOptions{Owner: l.Owner()}), holdfast.ErrInvalid, "break without a reason")
	if token := l.Token(); token != 0 {
		o = holdfast.BreakOptions{Token: token - 256, Reason: "test"}
		t.is(b.Break(t.ctx, name, o), holdfast.ErrConflict, "break with a stale token")
		if err := l.Check(t.ctx); err != nil {
			t.Errorf("the holder: %v", err)
		}
		if err := b.Break(t.ctx, name, holdfast.BreakOptions{Token: token, Reason: "test", Force: true}); err != nil {
			t.Errorf("break with the token: %v", err)
		}
		t.frees(t.opens(b, name, nil))
	}
	_ = l.Release(t.ctx)
}
