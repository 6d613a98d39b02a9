package integration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/history"
)

// electionHistories is how many random elections a run plays.
const (
	electionHistories     = 800
	electionHistoriesFull = 5_000
)

// runs is holdfast.Election.Run, or something that does it wrong.
type runs func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error

func asItIs(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
	return e.Run(ctx, fn)
}

// TestElectionSchedules lets random candidates lead behind bad lines, in bubbles
// whose clock jumps. What is recorded as a hold is the work, from its first to its
// last moment: that of two terms must never overlap, whatever the lines do.
func TestElectionSchedules(t *testing.T) {
	t.Parallel()
	n := electionHistories
	if full() {
		n = electionHistoriesFull
	}
	first, terms, lost := rand.Uint64(), 0, 0
	for i := range uint64(n) {
		h, err := playElection(t, first+i, asItIs)
		if err != nil {
			t.Fatalf("seed %d: %v\nevents: %s", first+i, err, keepEvents(first+i, h.Events))
		}
		terms += len(h.Grants)
		for j := range h.Events {
			if h.Events[j].Kind == history.Fault && strings.HasPrefix(h.Events[j].Err, "called off") {
				lost++
			}
		}
	}
	t.Logf("%d histories: %d terms, %d of them called off before their deadline", n, terms, lost)
	if terms < 3*n || lost < n/20 {
		t.Error("too little happened to prove anything")
	}
}

// A hunt that finds nothing must be one that could have found something.
func TestElectionSchedulesSeeWrongRuns(t *testing.T) {
	t.Parallel()
	const most = 300
	for name, run := range map[string]runs{
		"resigns when it is called off": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
			term, err := e.Campaign(ctx, "")
			if err != nil {
				return err
			}
			stop := context.AfterFunc(ctx, func() { _ = term.Resign(ctx) })
			defer stop()
			return errors.Join(fn(term.Context(), term), term.Resign(ctx))
		},
		"stops at the deadline": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
			term, err := e.Campaign(ctx, "")
			if err != nil {
				return err
			}
			work, cancel := context.WithCancel(term.Context())
			defer cancel()
			stop := context.AfterFunc(ctx, cancel)
			defer stop()
			return errors.Join(fn(work, term), term.Resign(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				if _, err := playElection(t, seed, run); err != nil && strings.Contains(err.Error(), "belief:") {
					t.Logf("found in history %d", seed)
					return
				}
			}
			t.Errorf("not found in %d histories", most)
		})
	}
}

// playElection plays the election of one seed, and judges it.
func playElection(t *testing.T, seed uint64, run runs) (*history.History, error) {
	t.Helper()
	w := draw(seed)
	w.names, w.clients = []string{"office"}, max(w.clients, 2)
	synctest.Test(t, func(*testing.T) { w.elect(run) })
	h, err := history.New(w.rec.Events())
	if err != nil {
		return h, err
	}
	return h, errors.Join(append(w.faults, h.Check(10*time.Second))...)
}

// elect is run for candidates in place of workers.
func (w *world) elect(run runs) {
	w.begin()
	var candidates, others sync.WaitGroup
	done := make(chan struct{})
	for i := range w.users {
		for k := range w.workers {
			candidates.Go(func() { w.newCandidate(i, k, run).campaigns() })
		}
	}
	others.Go(func() { w.breakSome(done) })
	others.Go(func() { w.cutSome(done) })
	others.Go(func() { w.closeOne(done) })
	candidates.Wait()
	close(done)
	others.Wait()
	w.finish()
}

// aspirant is one goroutine that wants to lead.
type aspirant struct {
	*worker
	run runs
}

func (w *world) newCandidate(client, k int, run runs) *aspirant {
	return &aspirant{w.newWorker(client, k), run}
}

// campaigns leads for a while, some times over.
func (a *aspirant) campaigns() {
	for range a.w.rounds {
		pause(nil, a.upTo(a.w.ttl))
		ctx, cancel := context.WithTimeout(context.Background(), a.w.ttl+a.upTo(10*a.w.ttl))
		err := a.run(ctx, a.client.Election(a.w.names[0]), a.leads)
		cancel()
		if errors.Is(err, holdfast.ErrClosed) {
			return
		}
	}
}

var errNotToday = errors.New("not today")

// leads is the work of a term: it ends by itself, or when it is called off, and
// takes nearly all of the grace to stop then.
func (a *aspirant) leads(ctx context.Context, term *holdfast.Term) error {
	op := a.rec.NextOp()
	add := func(e history.Event) {
		e.Client, e.Op, e.Name = a.number, op, a.w.names[0]
		a.rec.Add(e)
	}
	add(history.Event{Kind: history.Acquire, Mode: history.Exclusive, N: 1})
	add(history.Event{Kind: history.Granted, Token: term.Token()})
	defer add(history.Event{Kind: history.Released, OK: true})
	defer add(history.Event{Kind: history.Release})
	if !pause(ctx.Done(), a.upTo(3*a.w.ttl)) {
		if errors.Is(context.Cause(ctx), holdfast.ErrLost) && term.Valid() {
			add(history.Event{Kind: history.Fault, Err: "called off: " + context.Cause(ctx).Error()})
		}
		pause(nil, a.upTo(a.w.ttl/6))
		return nil
	}
	switch a.r.IntN(3) {
	case 0:
		return errNotToday
	case 1:
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
