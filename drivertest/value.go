package drivertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var valueCases = []Case{
	{
		ID: "V1.1", Rule: "What a holder says of itself is read by all, with its owner, token and label, and can be said anew.",
		Needs: NeedValue, Quick: true, Func: valueIsRead,
		Kills: []string{"value unread", "first value stays"},
	},
	{
		ID: "V1.2", Rule: "Only the exact grant sets the value: not another owner, another token, a waiter, or a holder that was released.",
		Needs: NeedValue, Quick: true, Func: strangersSayNothing,
		Kills: []string{"token per process", "token reset on delete", "ghost waiter", "value unread", "first value stays", "value of anybody", "value of the name"},
	},
	{
		ID: "V1.3", Rule: "A holder whose lease ran out sets nothing any more, neither of the free name nor of the next holder.",
		Needs: NeedValue | NeedLease, Func: lapsedSaysNothing,
		Kills: []string{"value of anybody", "value of the name"},
	},
	{
		ID: "V1.4", Rule: "A late or repeated request with an old number changes nothing.",
		Needs: NeedValue, Quick: true, Func: lateValue,
		Kills: []string{"value unread", "first value stays", "late value wins"},
	},
	{
		ID: "V1.5", Rule: "The value ends with the grant: a free name has no leader, and the next holder begins without one.",
		Needs: NeedValue, Quick: true, Func: valueEnds,
		Kills: []string{"value unread", "value of the name"},
	},
	{
		ID: "V1.6", Rule: "Setting a value extends no lease.",
		Needs: NeedValue | NeedLease, Func: valueExtendsNothing,
		Kills: []string{"try takes a place", "value extends"},
	},
	{
		ID: "V1.7", Rule: "Renewals, refused attempts and waiters leave the value as it is.",
		Needs: NeedValue, Func: valueIsKept,
		Kills: []string{"repetition refused", "value unread", "first value stays", "renewal wipes the value"},
	},
	{
		ID: "V1.8", Rule: "Any UTF-8 without control characters comes back as it was said, up to 1024 bytes.",
		Needs: NeedValue, Func: valueIsWhole,
		Kills: []string{"value unread", "first value stays", "value cut"},
	},
	{
		ID: "V1.9", Rule: "Those who hold shared are no leader.",
		Needs: NeedValue | NeedShared, Func: readersLeadNothing,
		Kills: []string{"reader leads"},
	},
	{
		ID: "V1.10", Rule: "A name that is kept taken after the release has no leader.",
		Needs: NeedValue | NeedLease, Func: keptHasNoLeader,
		Kills: []string{"try takes a place", "reader leads", "leader of a kept name"},
	},
	{
		ID: "V1.11", Rule: "A value that is set with an ended context and an error may or may not be there; one that is refused for sure is not.",
		Needs: NeedValue, Func: endedValue,
		Kills: []string{"value unread", "first value stays", "refusal of a value untrue"},
	},
	{
		ID: "V1.12", Rule: "Inspection shows the value.",
		Needs: NeedValue | NeedInspect, Func: valueIsInspected,
		Kills: []string{"value not inspected"},
	},
	{
		ID: "V1.13", Rule: "The holder of a revoked grant may still speak until it has released.",
		Needs: NeedValue | NeedBreak, Func: brokenSpeaks,
		Kills: []string{"value unread", "break grants at once"},
	},
	{
		ID: "V1.14", Rule: "A watch tells of each change: a grant, a value, a release, and the next grant.",
		Needs: NeedWatch, Func: watchTells,
		Kills: []string{"missed wake-up", "value unread", "first value stays", "value of the name", "watch falls asleep"},
	},
	{
		ID: "V1.15", Rule: "Names are watched apart, and a watch ends with its context.",
		Needs: NeedWatch, Func: watchesApart, About: AboutClient,
	},
}

// says sets the value of a grant and asserts the answer.
func (p *peer) says(ref driver.Ref, seq uint64, value string, want bool, why string) {
	held, err := p.valuer().SetValue(p.t.ctx, &driver.ValueRequest{Ref: ref, Seq: seq, Value: value})
	if err != nil {
		p.t.Fatalf("set value: %v", err)
	}
	if held != want {
		p.t.Errorf("%s: a value was set: %v, want %v", why, held, want)
	}
}

func (p *peer) valuer() driver.Valuer {
	v, ok := p.Store.(driver.Valuer)
	if !ok {
		p.t.Fatalf("not a Valuer")
	}
	return v
}

func (p *peer) leader(n driver.Name) *driver.Holder {
	h, err := p.valuer().Leader(p.t.ctx, n)
	if err != nil {
		p.t.Fatalf("leader: %v", err)
	}
	return h
}

// hears asserts what is said under a name.
func (p *peer) hears(h hold, seq uint64, value, why string) {
	switch got := p.leader(h.Name); {
	case got == nil:
		p.t.Errorf("%s: no leader", why)
	case got.Owner != h.Owner || got.Seq != seq || got.Value != value:
		p.t.Errorf("%s: owner %x says %q (%d), want owner %x, %q (%d)", why, got.Owner, got.Value, got.Seq, h.Owner, value, seq)
	case seq > 0 && got.Token != h.Token:
		p.t.Errorf("%s: token %d, want %d", why, got.Token, h.Token)
	}
}

func (p *peer) hearsNothing(n driver.Name, why string) {
	if got := p.leader(n); got != nil {
		p.t.Errorf("%s: %q (%s) leads", why, got.Value, got.Label)
	}
}

func valueIsRead(t *T) {
	a, b := t.peers()
	n := t.Name()
	b.hearsNothing(n, "a free name")
	h := a.granted(n)
	b.hears(h, 0, "", "a holder that has said nothing")
	for i, value := range []string{"10.0.0.1:80", "", "10.0.0.1:81"} {
		seq := uint64(i + 1)
		a.says(h.Ref, seq, value, true, "the holder")
		b.hears(h, seq, value, "after it was said")
		a.hears(h, seq, value, "at the client that said it")
	}
	if got := b.leader(n); got.Label != "drivertest" || got.Mode != driver.Exclusive {
		t.Errorf("label %q, mode %v", got.Label, got.Mode)
	}
	a.frees(h)
	b.hearsNothing(n, "after the release")
}

func strangersSayNothing(t *T) {
	a, b := t.peers()
	n := t.Name()
	free := driver.Ref{Name: n, Owner: newOwner(), Mode: driver.Exclusive, Token: 1}
	b.says(free, 9, "nobody's", false, "on a free name")
	b.hearsNothing(n, "a free name")
	h := a.granted(n)
	a.says(h.Ref, 1, "mine", true, "the holder")
	stranger := h.Ref
	stranger.Owner = newOwner()
	refs := []driver.Ref{stranger}
	if t.props.Fencing {
		stale := h.Ref
		stale.Token--
		refs = append(refs, stale)
	}
	if t.props.Wait == driver.ByPlaces {
		refs = append(refs, b.place(n))
	}
	for _, ref := range refs {
		for _, p := range []*peer{a, b} {
			p.says(ref, 9, "not mine", false, "a stranger")
		}
	}
	b.hears(h, 1, "mine", "after strangers spoke")
	if t.props.Wait == driver.ByPlaces {
		b.abandoned(refs[len(refs)-1])
	}
	a.frees(h)
	a.says(h.Ref, 2, "late", false, "a holder that was released")
	next := b.granted(n)
	a.says(h.Ref, 3, "late", false, "a holder before this one")
	b.hears(next, 0, "", "the next holder")
	b.frees(next)
}

func lapsedSaysNothing(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(t.Steady()))
	a.says(h.Ref, 1, "mine", true, "the holder")
	t.eventually("the lease runs out", func() bool { return b.leader(n) == nil })
	a.says(h.Ref, 2, "late", false, "a lapsed holder of a free name")
	next := b.obtains(n)
	a.says(h.Ref, 3, "late", false, "a lapsed holder")
	b.hears(next, 0, "", "the next holder")
	b.frees(next)
}

func lateValue(t *T) {
	a, b := t.peers()
	h := a.granted(t.Name())
	a.says(h.Ref, 1, "one", true, "the holder")
	a.says(h.Ref, 3, "three", true, "the holder")
	a.says(h.Ref, 2, "two, late", true, "a late request of the holder")
	b.hears(h, 3, "three", "after a late request")
	a.says(h.Ref, 3, "three, otherwise", true, "a repeated request of the holder")
	b.hears(h, 3, "three", "after a repeated request")
	a.says(h.Ref, 10, "ten", true, "the holder") // numbers, not text
	a.says(h.Ref, 9, "nine, late", true, "a late request of the holder")
	b.hears(h, 10, "ten", "after a late request")
	a.frees(h)
}

func valueEnds(t *T) {
	a, b := t.peers()
	n := t.Name()
	for seq := range uint64(3) {
		h := a.granted(n)
		b.hears(h, 0, "", "a new holder")
		a.says(h.Ref, 5-seq, fmt.Sprint("term ", seq), true, "the holder")
		b.hears(h, 5-seq, fmt.Sprint("term ", seq), "the holder")
		a.frees(h)
		b.hearsNothing(n, "between two holders")
		a, b = b, a
	}
}

func valueExtendsNothing(t *T) {
	a, b := t.peers()
	n := t.Name()
	ttl := t.TTL()
	h := a.granted(n, lasting(ttl))
	begin := time.Now()
	var next hold
	seq := uint64(0)
	t.eventually("the lease runs out although its holder speaks", func() bool {
		seq++
		_, err := a.valuer().SetValue(t.ctx, &driver.ValueRequest{Ref: h.Ref, Seq: seq, Value: "still here"})
		if err != nil {
			t.Fatalf("set value: %v", err)
		}
		var res driver.AcquireResult
		next, res = b.ask(n)
		return res.Status == driver.Granted
	})
	if took := time.Since(begin); t.h.Patient && took > 2*ttl {
		t.Errorf("the lease of %v ran out after %v", ttl, took)
	}
	b.frees(next)
}

func valueIsKept(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	a.says(h.Ref, 1, "kept", true, "the holder")
	a.keeps(h.Ref, driver.Renewed, "the holder")
	a.renewals(driver.RenewRequest{Ref: h.Ref, TTL: longTTL, Label: "renamed"})
	b.hears(h, 1, "kept", "after renewals")
	b.refused(n, "a leader's name")
	if t.props.Wait == driver.ByPlaces {
		ref := b.place(n)
		b.hears(h, 1, "kept", "with a waiter")
		b.abandoned(ref)
	}
	a.granted(n, as(h.Owner)) // a repetition
	b.hears(h, 1, "kept", "after a repeated attempt")
	a.says(h.Ref, 2, "renewed", true, "the holder")
	b.hears(h, 2, "renewed", "after all that")
	a.frees(h)
}

func valueIsWhole(t *T) {
	a, b := t.peers()
	h := a.granted(t.Name())
	values := []string{
		"10.0.0.1:8080", `{"addr":"10.0.0.1:8080","zone":"b","weight":10}`, `a\b "c" 'd' %s $e {f} [g] =h,i;j|k`,
		"Zürich 東京 🙂 \u200b\u00ad", " spaces around ", "-1", "0x00", "null", strings.Repeat("x", driver.MaxValue),
		strings.Repeat(`"\`, driver.MaxValue/2), strings.Repeat("\u00ad", driver.MaxValue/2), strings.Repeat("🙂", driver.MaxValue/4), "",
	}
	for i, value := range values {
		seq := uint64(i + 1)
		a.says(h.Ref, seq, value, true, "the holder")
		b.hears(h, seq, value, "as it was said")
	}
	a.frees(h)
}

func readersLeadNothing(t *T) {
	a, b := t.peers()
	n := t.Name()
	one := a.granted(n, shared)
	b.hearsNothing(n, "under one reader")
	two := b.granted(n, shared)
	b.hearsNothing(n, "under two readers")
	a.frees(one)
	b.frees(two)
}

func keptHasNoLeader(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	a.says(h.Ref, 1, "gone soon", true, "the holder")
	a.releases(&driver.ReleaseRequest{Ref: h.Ref, Keep: t.TTL()})
	b.hearsNothing(n, "while the name is kept")
	b.frees(b.obtains(n))
}

func endedValue(t *T) {
	a, b := t.peers()
	h := a.granted(t.Name())
	a.says(h.Ref, 1, "before", true, "the holder")
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err := a.valuer().SetValue(ended, &driver.ValueRequest{Ref: h.Ref, Seq: 2, Value: "after"})
	if err != nil {
		if kind := a.Classify(err); kind == driver.Unavailable || kind == driver.Canceled {
			b.hears(h, 1, "before", "after a value that was surely refused")
		}
	}
	if _, err := a.valuer().Leader(ended, h.Name); err == nil {
		t.Errorf("Leader with an ended context answered")
	}
	a.says(h.Ref, 2, "after", true, "the same request again")
	if got := b.leader(h.Name); got == nil || got.Seq != 2 {
		t.Errorf("after the same request again: %+v", got)
	}
	a.frees(h)
}

func valueIsInspected(t *T) {
	a, b := t.peers()
	inspector, ok := b.Store.(driver.Inspector)
	if !ok {
		t.Fatalf("not an Inspector")
	}
	h := a.granted(t.Name())
	for i, value := range []string{"", "seen"} {
		seq := uint64(i)
		if seq > 0 {
			a.says(h.Ref, seq, value, true, "the holder")
		}
		r, err := inspector.Inspect(t.ctx, h.Name)
		if err != nil || len(r.Holders) != 1 {
			t.Fatalf("inspect: %+v, %v", r, err)
		}
		if got := r.Holders[0]; got.Value != value || got.Seq != seq {
			t.Errorf("inspection shows %q (%d), want %q (%d)", got.Value, got.Seq, value, seq)
		}
	}
	a.frees(h)
}

func brokenSpeaks(t *T) {
	a, b := t.peers()
	h := a.granted(t.Name())
	b.breaks(&driver.BreakRequest{Name: h.Name, Owner: h.Owner, Reason: "test"}, driver.Marked)
	a.says(h.Ref, 1, "stepping down", true, "the holder of a revoked grant")
	b.hears(h, 1, "stepping down", "a revoked grant")
	a.frees(h)
	b.hearsNothing(h.Name, "after the release")
}
