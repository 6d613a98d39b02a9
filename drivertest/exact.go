package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var exactCases = []Case{
	{
		ID: "G2.1", Rule: "Renewal and release with a wrong token, or with a stranger's owner, change nothing.",
		Quick: true, Func: strangersChangeNothing,
		Kills: []string{"no owner compare", "release by name", "token per process", "token reset on delete", "blind extend"},
	},
	{
		ID: "G2.2", Rule: "A repeated attempt of one owner answers as the first did, and is one grant.",
		Quick: true, Func: repeatedAcquire,
		Kills: []string{"no owner compare", "release by name", "repetition refused"},
	},
	{
		ID: "G2.3", Rule: "A repeated attempt of a waiting owner keeps its one place.",
		Needs: NeedQueue, Func: repeatedEnqueue,
		Kills: []string{"owner is the client", "repetition refused", "missed wake-up", "silent hand-over"},
	},
	{
		ID: "G2.4", Rule: "A repeated release does not touch the next holder's grant.",
		Quick: true, Func: repeatedRelease,
		Kills: []string{"no owner compare", "release by name"},
	},
	{
		ID: "G2.5", Rule: "Renewal and release that come after the grant lapsed and the name was granted anew change nothing.",
		Needs: NeedLease, Func: lateCalls,
		Kills: []string{"no owner compare", "release by name", "try takes a place"},
	},
	{
		ID: "G2.6", Rule: "A holder whose lease ran out, and who finishes only now, is told so, and the present holder is undisturbed.",
		Needs: NeedLease, Func: lateRelease,
		Kills: []string{"deadline from the reply", "early end"},
	},
	{
		ID: "G2.7", Rule: "An attempt that arrives after it was abandoned is answered Gone: it gets neither grant nor place.",
		Needs: NeedRefusal, Func: abandonedFirst,
		Kills: []string{"late grant accepted"},
	},
	{
		ID: "G2.8", Rule: "Abandoning an owner ends the grant that it has, also one that came after the first abandon.",
		Func:  abandonedGrant,
		Kills: []string{"late grant accepted", "abandoned grant stays"},
	},
	{
		ID: "G2.9", Rule: "An acquire whose answer was lost holds nothing once the caller has its error and the store answers again.",
		Func:  lostAcquireReply,
		Kills: []string{"abandoned grant stays"},
	},
	{
		ID: "G2.10", Rule: "A release whose answer was lost is repeated, and the repetition does not touch the newer grant.",
		Func:  lostReleaseReply,
		Kills: []string{"no owner compare", "release by name"},
	},
	{
		ID: "G2.11", Rule: "A renewal whose answer was lost and that is sent again still finds its grant.",
		Needs: NeedLease, Func: lostRenewReply, About: AboutClient,
	},
	{
		ID: "G2.12", Rule: "Each request of a batch is answered in its place as it would be alone.",
		Needs: NeedBatch, Func: batches,
		Kills: []string{"no owner compare", "release by name", "batch releases one", "try takes a place", "batch is one"},
	},
	{
		ID: "G2.13", Rule: "A release without a token compares the owner alone.",
		Func:  releaseByOwner,
		Kills: []string{"token demanded"},
	},
	{
		ID: "G2.16", Rule: "A grant of which the store may learn the token late is its owner's alone, and from the first renewal on the token's too.",
		Func:  bareGrant,
		Kills: []string{"no owner compare", "release by name", "blind extend", "try takes a place", "token per process", "token reset on delete"},
	},
}

func strangersChangeNothing(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	wrong := h.Ref
	wrong.Owner = newOwner()
	refs := []driver.Ref{wrong}
	if t.props.Fencing {
		stale := h.Ref
		stale.Token--
		refs = append(refs, stale)
	}
	for _, ref := range refs {
		for _, p := range []*peer{a, b} {
			p.keeps(ref, driver.Lost, "a stranger")
			if p.released(ref) {
				t.Errorf("a stranger's release answered true")
			}
		}
	}
	a.keeps(h.Ref, driver.Renewed, "the holder")
	b.refused(n, "after a stranger's calls")
	a.frees(h)
}

func repeatedAcquire(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	again := a.granted(n, as(h.Owner))
	if again.Token != h.Token {
		t.Errorf("the repetition has token %d, the grant %d", again.Token, h.Token)
	}
	a.frees(h)
	next := b.granted(n) // one release was enough
	a.released(again.Ref)
	b.keeps(next.Ref, driver.Renewed, "the next grant")
	b.frees(next)
}

func repeatedEnqueue(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	first := b.place(n)
	second := a.place(n)
	again, res := b.ask(n, queued, as(first.Owner))
	if res.Status != driver.Waiting || res.Queue.Ahead > 1 {
		t.Errorf("the repetition: status %d with %d ahead", res.Status, res.Queue.Ahead)
	}
	a.frees(h)
	b.frees(b.told(again.Ref))
	a.frees(a.told(second)) // a second place of the first would be ahead
	b.frees(b.granted(n))
}

func repeatedRelease(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	a.frees(h)
	a.released(h.Ref) // false, or as the first did
	next := b.granted(n)
	a.released(h.Ref)
	if a.abandoned(h.Ref) {
		t.Errorf("abandoning an owner that has nothing answered true")
	}
	a.refused(n, "after a repeated release")
	b.keeps(next.Ref, driver.Renewed, "the next holder")
	b.frees(next)
}

func lateCalls(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, lasting(t.TTL()))
	next := b.obtains(n)
	a.keeps(h.Ref, driver.Lost, "a lapsed grant")
	if a.released(h.Ref) {
		t.Errorf("the release of a lapsed grant answered true")
	}
	a.keeps(h.Ref, driver.Lost, "a lapsed grant, again")
	a.refused(n, "after the late calls")
	b.keeps(next.Ref, driver.Renewed, "the present holder")
	b.frees(next)
}

func lateRelease(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.TTL(), NoRenew: true})
	next := t.locks(b, name, nil)
	if l.Valid() {
		t.Errorf("the first lease is still valid when the second is granted")
	}
	t.is(l.Release(t.ctx), holdfast.ErrLost, "late release")
	t.is(l.Renew(t.ctx, t.TTL()), holdfast.ErrLost, "late renewal")
	t.busy(c, name, nil, "after the late release")
	if err := next.Check(t.ctx); err != nil {
		t.Errorf("the present holder: %v", err)
	}
	t.frees(next)
}

func abandonedFirst(t *T) {
	a, b := t.peers()
	n := t.Name()
	ref := driver.Ref{Name: n, Owner: newOwner(), Mode: driver.Exclusive}
	if a.abandoned(ref) {
		t.Errorf("abandoning an unknown owner answered true")
	}
	if _, res := a.ask(n, as(ref.Owner)); res.Status != driver.Gone {
		t.Errorf("an attempt after its abandon: status %d, want gone", res.Status)
	}
	h := b.granted(n)
	asks := []ask{as(ref.Owner)}
	if t.props.Wait == driver.ByPlaces {
		asks = append(asks, queued)
	}
	if _, res := a.ask(n, asks...); res.Status != driver.Gone {
		t.Errorf("an attempt on a held name after its abandon: status %d, want gone", res.Status)
	}
	b.frees(h)
	b.frees(b.granted(n))
}

func abandonedGrant(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	if !a.abandoned(h.Ref) {
		t.Errorf("abandoning a grant answered false")
	}
	// A copy of the attempt arrives late. Not every store can refuse it; the
	// next abandon ends it there.
	if _, res := a.ask(n, as(h.Owner)); res.Status != driver.Gone && t.h.has(a.Store)&NeedRefusal != 0 {
		t.Errorf("an abandoned owner asks again: status %d, want gone", res.Status)
	}
	a.abandoned(h.Ref)
	b.frees(b.granted(n))
}

func lostAcquireReply(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	bad.all(replyLost, opAcquire)
	l, err := a.TryAcquire(t.ctx, name, nil)
	if err == nil {
		t.Fatalf("granted without an answer, token %d", l.Token())
	}
	if !errors.Is(err, holdfast.ErrIndeterminate) {
		t.Errorf("%v, want ErrIndeterminate", err)
	}
	bad.heal()
	t.pause(t.TTL()) // for what is done in the background
	begin := time.Now()
	t.frees(t.opens(b, name, nil)) // long before the default TTL
	t.prompt(begin, "the next acquire")
}

func lostReleaseReply(t *T) {
	a, bad := t.linked()
	b, c := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	next := t.waiting(t.ctx, b, name, nil)
	bad.set(func(o op, _ driver.Name) fate {
		if o == opRelease && bad.count(opRelease) == 1 {
			return replyLost
		}
		return passes
	})
	_ = l.Release(t.ctx) // it may not know yet
	lease := t.wins(next)
	t.eventually("the repeated release", func() bool { return bad.count(opRelease) > 1 })
	t.busy(c, name, nil, "after the repeated release")
	if err := lease.Check(t.ctx); err != nil {
		t.Errorf("the newer grant: %v", err)
	}
	t.frees(lease)
}

func lostRenewReply(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name := t.LockName()
	l := t.locks(a, name, &holdfast.AcquireOptions{TTL: t.Steady()})
	bad.all(replyLost, opRenew)
	t.eventually("a renewal", func() bool { return bad.count(opRenew) > 0 })
	bad.heal()
	sent := bad.count(opRenew)
	t.eventually("another renewal", func() bool { return bad.count(opRenew) > sent+1 })
	t.busy(b, name, nil, "after a renewal whose answer was lost")
	if !l.Valid() {
		t.Errorf("the lease is not valid")
	}
	t.frees(l)
}

func batches(t *T) {
	a, b := t.peers()
	taken := t.Name()
	free, free2 := a.together(taken), a.together(taken)
	h := b.granted(taken)
	batcher, ok := a.Store.(driver.Batcher)
	if !ok {
		t.Fatalf("not a Batcher")
	}
	if batcher.MaxBatch() < 3 {
		return
	}
	reqs := []*driver.AcquireRequest{a.request(free, nil), a.request(taken, nil), a.request(free2, nil)}
	answers := batcher.AcquireMany(t.ctx, reqs)
	want := []driver.Status{driver.Granted, driver.Held, driver.Granted}
	if len(answers) != len(want) {
		t.Fatalf("%d answers to %d requests", len(answers), len(want))
	}
	var ends []*driver.ReleaseRequest
	for i, answer := range answers {
		if answer.Err != nil || answer.Status != want[i] {
			t.Errorf("answer %d: status %d, error %v; want %d", i, answer.Status, answer.Err, want[i])
		}
		ref := refTo(reqs[i])
		ref.Token = answer.Grant.Token
		ends = append(ends, &driver.ReleaseRequest{Ref: ref})
	}
	released := batcher.ReleaseMany(t.ctx, ends)
	if len(released) != 3 || !released[0].Released || released[1].Released || !released[2].Released {
		t.Errorf("releases: %+v, want true, false, true", released)
	}
	a.refused(taken, "after a batch that did not hold the name")
	if mixer, ok := a.Store.(driver.Mixer); ok {
		mixed(t, mixer, a, &h, free, free2)
	}
	b.frees(h)
	b.frees(b.granted(free))
	b.frees(b.granted(free2))
}

// mixed ends a hold of one name, and asks for another and for that of h, in one batch.
func mixed(t *T, mixer driver.Mixer, a *peer, h *hold, ends, begins driver.Name) {
	mine, stranger := a.granted(ends), h.Ref
	stranger.Owner = newOwner()
	reqs := []*driver.AcquireRequest{a.request(begins, nil), a.request(h.Name, nil)}
	acquired, released := mixer.Mix(t.ctx, reqs, []*driver.ReleaseRequest{{Ref: mine.Ref}})
	if len(acquired) != 2 || len(released) != 1 {
		t.Fatalf("%d answers to 2 attempts, %d to a release", len(acquired), len(released))
	}
	if acquired[0].Err != nil || acquired[0].Status != driver.Granted || acquired[1].Err != nil || acquired[1].Status != driver.Held {
		t.Errorf("attempts of a mixed batch: %+v, want one granted and one held", acquired)
	}
	if released[0].Err != nil || !released[0].Released {
		t.Errorf("release of a mixed batch: %+v", released[0])
	}
	ref := refTo(reqs[0])
	ref.Token = acquired[0].Grant.Token
	again := a.request(ends, nil)
	acquired, released = mixer.Mix(t.ctx, []*driver.AcquireRequest{again}, []*driver.ReleaseRequest{{Ref: ref}, {Ref: stranger}})
	if len(released) != 2 || !released[0].Released || released[1].Released {
		t.Errorf("releases of a mixed batch: %+v, want true, false", released)
	}
	ref = refTo(again)
	ref.Token = acquired[0].Grant.Token
	if !a.released(ref) {
		t.Errorf("what a mixed batch granted was not there to be released")
	}
}

func releaseByOwner(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n)
	bare := h.Ref
	bare.Token = 0
	if !a.released(bare) {
		t.Errorf("a release by owner alone answered false")
	}
	b.frees(b.granted(n))
}

func bareGrant(t *T) {
	a, b := t.peers()
	n := t.Name()
	h := a.granted(n, bare)
	b.refused(n, "beside a bare grant", bare)
	stranger := h.Ref
	stranger.Owner = newOwner()
	b.keeps(stranger, driver.Lost, "a stranger")
	if b.released(stranger) {
		t.Errorf("a stranger's release answered true")
	}
	a.keeps(h.Ref, driver.Renewed, "a bare grant")
	if t.props.Fencing {
		stale := h.Ref
		stale.Token--
		b.keeps(stale, driver.Lost, "a stale token, once the store knows the right one")
		if b.released(stale) {
			t.Errorf("a release with a stale token answered true")
		}
	}
	a.frees(h)
	next := b.granted(n, bare)
	if t.props.Fencing && next.Token <= h.Token {
		t.Errorf("token %d after %d", next.Token, h.Token)
	}
	a.keeps(h.Ref, driver.Lost, "a released grant")
	b.frees(next)
	b.frees(b.granted(n))
}

// clockNoise is by how much two readings of one deadline may differ: it is
// translated from the clock of package driver to a time.Time at each call.
const clockNoise = time.Millisecond

// deadlineOf is a lease's deadline, or the end of time.
func deadlineOf(l *holdfast.Lease) time.Time {
	if d, ok := l.Deadline(); ok {
		return d
	}
	return time.Now().AddDate(100, 0, 0)
}
