package redislock

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// model plays one random history on the server and on the memory store, which
// is the reference, and compares every answer.
type model struct {
	t      *testing.T
	random *rand.Rand
	ours   *store
	theirs driver.Queuer
	reqs   []*driver.AcquireRequest // one an owner
	log    []string
}

func TestSameAsMemory(t *testing.T) {
	t.Parallel()
	s := ownServer(t).open(t)
	for seed := range uint64(100) {
		theirs, ok := memlock.New().(driver.Queuer)
		if !ok {
			t.Fatal("the memory store has no queue")
		}
		theirs.Listen(func(driver.Signal) {})
		m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), ours: s, theirs: theirs}
		m.play(fmt.Sprintf("%s/%d", t.Name(), seed))
		if t.Failed() {
			t.Logf("seed %d: %q", seed, m.log)
			return
		}
	}
}

func (m *model) play(name string) {
	kinds := [][]driver.Mode{{driver.Exclusive}, {driver.Exclusive, driver.Shared}, {driver.Permits}}[m.random.IntN(3)]
	for range 7 {
		req := request(name)
		req.TTL, req.Claim = time.Hour, time.Hour
		if req.Mode = kinds[m.random.IntN(len(kinds))]; req.Mode == driver.Permits {
			req.N, req.Limit = 1+m.random.IntN(3), 3
		}
		m.reqs = append(m.reqs, req)
	}
	for range 40 {
		if m.step(m.reqs[m.random.IntN(len(m.reqs))]); m.t.Failed() {
			return
		}
		m.look()
	}
}

// step does one thing for one owner.
func (m *model) step(req *driver.AcquireRequest) {
	ctx, ref := m.t.Context(), driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}
	switch m.random.IntN(8) {
	case 0, 1, 2, 3:
		req.Bare = req.Mode == driver.Exclusive && m.random.IntN(2) == 0
		req.Queue, req.Unfair = m.random.IntN(4) > 0, m.random.IntN(6) == 0
		got, err := m.ours.Acquire(ctx, req)
		want, wantErr := m.theirs.Acquire(ctx, req)
		m.same(fmt.Sprintf("acquire %x queue=%t unfair=%t", req.Owner[:2], req.Queue, req.Unfair), got.Status, want.Status, err, wantErr)
	case 4, 5, 6:
		end := &driver.ReleaseRequest{Ref: ref}
		if m.random.IntN(4) == 0 { // keeps the name taken by nobody, until it is broken
			end.Keep = time.Hour
		}
		got, err := m.ours.Release(ctx, end)
		want, wantErr := m.theirs.Release(ctx, end)
		m.same(fmt.Sprintf("release %x keep=%v", req.Owner[:2], end.Keep), got, want, err, wantErr)
	case 7:
		b := &driver.BreakRequest{Name: req.Name, Owner: req.Owner, Reason: "test", Force: m.random.IntN(2) == 0}
		if m.random.IntN(2) == 0 {
			b.Owner = driver.Owner{}
		}
		got, err := m.ours.Break(ctx, b)
		want, wantErr := m.theirs.(driver.Breaker).Break(ctx, b) //nolint:errcheck // the memory store is one
		m.same(fmt.Sprintf("break %x force=%t", b.Owner[:2], b.Force), got, want, err, wantErr)
	}
}

// look compares what became of every owner.
func (m *model) look() {
	ctx := m.t.Context()
	for _, req := range m.reqs {
		ref := driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}
		got, want := m.ours.Beat(ctx, []driver.Ref{ref})[0], m.theirs.Beat(ctx, []driver.Ref{ref})[0]
		m.same(fmt.Sprintf("beat %x", req.Owner[:2]), got.Status, want.Status, got.Err, want.Err)
		renewal := []driver.RenewRequest{{Ref: ref}}
		gotR, wantR := m.ours.Renew(ctx, renewal)[0], m.theirs.Renew(ctx, renewal)[0]
		m.same(fmt.Sprintf("renew %x", req.Owner[:2]), fmt.Sprint(gotR.Status, gotR.Reason), fmt.Sprint(wantR.Status, wantR.Reason), gotR.Err, wantR.Err)
	}
	got, err := m.ours.Inspect(ctx, m.reqs[0].Name)
	want, wantErr := m.theirs.(driver.Inspector).Inspect(ctx, m.reqs[0].Name) //nolint:errcheck // the memory store is one
	m.same("inspect", outline(&got), outline(&want), err, wantErr)
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

func (m *model) same(what string, got, want any, err, wantErr error) {
	m.log = append(m.log, fmt.Sprint(what, " = ", want))
	if err != nil || wantErr != nil || got != want {
		m.t.Errorf("%s: %v, %v; the memory store says %v, %v", what, got, err, want, wantErr)
	}
}
