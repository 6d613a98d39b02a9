package storetest

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Full is a store with all abilities that a model run asks about.
type Full interface {
	driver.Queuer
	driver.Breaker
	driver.Inspector
}

// Model plays random histories on a store and on a reference, and compares every
// answer.
type Model struct {
	Ours      Full
	Reference func() Full // a new one for each history
	Name      func(text string) driver.Name
	// Overtakes: the store lets those who ask for it pass the queue.
	Overtakes bool
	// Keeps: a release can leave the name taken.
	Keeps bool
	// Buries: an owner whose grant was broken by force is refused from then on.
	Buries bool
	// Lags: what the store tells of a place may be a moment old.
	Lags bool
	// TTL of the grants; an hour if it is 0.
	TTL time.Duration
}

// Run plays histories, each of a name of its own.
func (m *Model) Run(t *testing.T, histories uint64) {
	t.Helper()
	for seed := range histories {
		reference := m.Reference()
		reference.Listen(func(driver.Signal) {})
		h := &history{Model: m, t: t, random: mathrand.New(mathrand.NewPCG(seed, 1)), theirs: reference}
		h.play(fmt.Sprintf("%s/%d", t.Name(), seed))
		_ = reference.Close()
		if t.Failed() {
			t.Logf("seed %d: %q", seed, h.log)
			return
		}
	}
}

type history struct {
	*Model
	t      *testing.T
	random *mathrand.Rand
	theirs Full
	reqs   []*driver.AcquireRequest // one an owner
	log    []string
}

func (h *history) play(name string) {
	kinds := [][]driver.Mode{{driver.Exclusive}, {driver.Exclusive, driver.Shared}, {driver.Permits}}[h.random.IntN(3)]
	for range 7 {
		req := Request(h.Name(name))
		req.TTL, req.Claim = time.Hour, time.Hour
		if h.TTL > 0 {
			req.TTL = h.TTL
		}
		if req.Mode = kinds[h.random.IntN(len(kinds))]; req.Mode == driver.Permits {
			req.N, req.Limit = 1+h.random.IntN(3), 3
		}
		h.reqs = append(h.reqs, req)
	}
	for range 40 {
		if h.step(h.reqs[h.random.IntN(len(h.reqs))]); h.t.Failed() {
			return
		}
		h.look()
	}
}

// step does one thing for one owner.
func (h *history) step(req *driver.AcquireRequest) {
	switch h.random.IntN(8) {
	case 0, 1, 2, 3:
		h.acquire(req)
	case 4, 5, 6:
		end := &driver.ReleaseRequest{Ref: driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}}
		if h.random.IntN(4) == 0 && h.Keeps { // taken by nobody, until it is broken
			end.Keep = time.Hour
		}
		got, err := h.Ours.Release(h.t.Context(), end)
		want, wantErr := h.theirs.Release(h.t.Context(), end)
		h.same(fmt.Sprintf("release %x keep=%v", req.Owner[:2], end.Keep), got, want, err, wantErr)
	case 7:
		h.breaks(req)
	}
}

func (h *history) acquire(req *driver.AcquireRequest) {
	req.Bare = req.Mode == driver.Exclusive && h.random.IntN(2) == 0
	req.Queue, req.Unfair = h.random.IntN(4) > 0, h.Overtakes && h.random.IntN(6) == 0
	got, err := h.Ours.Acquire(h.t.Context(), req)
	want, wantErr := h.theirs.Acquire(h.t.Context(), req)
	h.same(fmt.Sprintf("acquire %x queue=%t unfair=%t", req.Owner[:2], req.Queue, req.Unfair), got.Status, want.Status, err, wantErr)
}

func (h *history) breaks(req *driver.AcquireRequest) {
	b := &driver.BreakRequest{Name: req.Name, Owner: req.Owner, Reason: "test", Force: h.random.IntN(2) == 0}
	if h.random.IntN(2) == 0 {
		b.Owner = driver.Owner{}
	}
	got, err := h.Ours.Break(h.t.Context(), b)
	want, wantErr := h.theirs.Break(h.t.Context(), b)
	h.same(fmt.Sprintf("break %x force=%t", b.Owner[:2], b.Force), got, want, err, wantErr)
	if h.Buries && got == driver.Freed {
		rand.Read(req.Owner[:])
	}
}

// look compares what became of every owner.
func (h *history) look() {
	ctx := h.t.Context()
	for _, req := range h.reqs {
		ref := driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}
		want := h.theirs.Beat(ctx, []driver.Ref{ref})[0]
		got := h.beat(ref, want.Status)
		h.same(fmt.Sprintf("beat %x", req.Owner[:2]), got.Status, want.Status, got.Err, want.Err)
		renewal := []driver.RenewRequest{{Ref: ref}}
		gotR, wantR := h.Ours.Renew(ctx, renewal)[0], h.theirs.Renew(ctx, renewal)[0]
		h.same(fmt.Sprintf("renew %x", req.Owner[:2]), fmt.Sprint(gotR.Status, gotR.Reason), fmt.Sprint(wantR.Status, wantR.Reason), gotR.Err, wantR.Err)
	}
	got, err := h.Ours.Inspect(ctx, h.reqs[0].Name)
	want, wantErr := h.theirs.Inspect(ctx, h.reqs[0].Name)
	h.same("inspect", outline(&got), outline(&want), err, wantErr)
}

func (h *history) beat(ref driver.Ref, want driver.Status) (got driver.BeatResult) {
	for end := time.Now().Add(Patience); ; {
		got = h.Ours.Beat(h.t.Context(), []driver.Ref{ref})[0]
		if !h.Lags || got.Status == want || got.Err != nil || time.Now().After(end) {
			return got
		}
	}
}

// outline is what both stores must say of a name.
func outline(r *driver.Record) string {
	var b strings.Builder
	for _, h := range r.Holders {
		fmt.Fprintf(&b, "%x %v %d %q %q; ", h.Owner[:2], h.Mode, h.Permits, h.Label, h.Broken)
	}
	b.WriteString("waiting: ")
	for _, w := range r.Waiters {
		fmt.Fprintf(&b, "%x %v %d; ", w.Owner[:2], w.Mode, w.Permits)
	}
	return b.String()
}

func (h *history) same(what string, got, want any, err, wantErr error) {
	h.log = append(h.log, fmt.Sprint(what, " = ", want))
	if err != nil || wantErr != nil || got != want {
		h.t.Errorf("%s: %v, %v; the reference says %v, %v", what, got, err, want, wantErr)
	}
}
