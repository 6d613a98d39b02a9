package integration_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/faulty"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/memlock"
)

// How many histories a run makes. HOLDFAST_SEED=n runs one of them, again and
// again: what happens at the same moment of the bubble's clock is ordered by
// the Go scheduler, not by the seed, so a failure may take some runs to show.
const (
	histories     = 3000
	historiesFull = 15_000 // the race detector keeps a quarter of a megabyte of each
	repetitions   = 200
	maxFailures   = 5 // then the run ends
	lanes         = 2
)

// TestSchedules runs random programs on the memory store behind bad lines, in
// bubbles whose clock jumps, and checks each history. It finds what no person
// would write down as a case.
func TestSchedules(t *testing.T) {
	t.Parallel()
	if env := os.Getenv("HOLDFAST_SEED"); env != "" {
		seed, err := strconv.ParseUint(env, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for range repetitions {
			if t.Failed() {
				return
			}
			play(t, seed, newTally())
		}
		return
	}
	n := histories
	if full() {
		n = historiesFull
	}
	first, sum := rand.Uint64(), newTally()
	start := time.Now()
	t.Cleanup(func() { sum.report(t, time.Since(start)) })
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			for i := lane; i < n && sum.failures() < maxFailures; i += lanes {
				play(t, first+uint64(i), sum) //nolint:gosec // not negative
			}
		})
	}
}

// play runs the history of one seed, and reports what is wrong with it.
func play(t *testing.T, seed uint64, sum *tally) {
	t.Helper()
	finished := false
	defer func() {
		if !finished { // a deadlock in the bubble panics, a race ends its test
			t.Errorf("the bubble of HOLDFAST_SEED=%d did not get to its end", seed)
		}
	}()
	w := draw(seed)
	synctest.Test(t, func(*testing.T) { w.run() })
	finished = true
	events := w.rec.Events()
	h, err := history.New(events)
	if h != nil {
		err = errors.Join(err, h.Check(10*time.Second))
		sum.add(h, w)
	}
	err = errors.Join(append(w.faults, err)...)
	if err != nil {
		sum.fail()
		t.Errorf("HOLDFAST_SEED=%d go test -run TestSchedules\n%s\nevents: %s\n%v", seed, w.describe(), keepEvents(seed, events), err)
	}
}

func keepEvents(seed uint64, events []history.Event) string {
	dir, err := os.MkdirTemp("", "holdfast-history-")
	if err != nil {
		return err.Error()
	}
	path := fmt.Sprintf("%s/%d.jsonl", dir, seed)
	if err := history.Write(path, events); err != nil {
		return err.Error()
	}
	return path
}

// world is one random program: clients of one server, with their workers.
type world struct {
	seed    uint64
	shape   faulty.Shape
	plan    faulty.Plan
	clients int
	workers int // of each client
	rounds  int // of each worker
	names   []string
	ttl     time.Duration
	pace    time.Duration // the longest step of a hold
	noLocal bool          // no hand-over within a client
	breaks  int
	outages int
	closing time.Duration // when one client is closed; 0: none is

	server *memlock.Server
	open   func(*memlock.Server) driver.Store
	rec    *history.Recorder
	users  []*user
	lines  []*faulty.Line

	mu     sync.Mutex
	faults []error
}

// draw makes the world of a seed.
func draw(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		open: (*memlock.Server).Store,
		seed: seed, shape: faulty.Shapes[r.IntN(len(faulty.Shapes))],
		clients: 1 + r.IntN(3), workers: 1 + r.IntN(4), rounds: 2 + r.IntN(4),
		ttl:     []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}[r.IntN(3)],
		noLocal: r.IntN(4) == 0,
	}
	w.pace = []time.Duration{w.ttl, 5 * time.Millisecond}[r.IntN(2)]
	w.names = [][]string{{"lock"}, {"permits"}, {"lock", "permits"}}[r.IntN(3)]
	w.plan = drawPlan(r, w.ttl)
	if r.IntN(3) == 0 {
		w.breaks = 1 + r.IntN(3)
	}
	if w.plan != (faulty.Plan{}) && r.IntN(2) == 0 {
		w.outages = 1 + r.IntN(2)
	}
	if r.IntN(3) == 0 {
		w.closing = time.Duration(r.Int64N(int64(2 * time.Second)))
	}
	return w
}

func drawPlan(r *rand.Rand, ttl time.Duration) faulty.Plan {
	if r.IntN(4) == 0 {
		return faulty.Plan{}
	}
	some := func(most float64) float64 { return r.Float64() * most * float64(r.IntN(2)) }
	return faulty.Plan{
		Seed:        r.Uint64(),
		Delay:       []time.Duration{100 * time.Microsecond, 3 * time.Millisecond, ttl / 8}[r.IntN(3)],
		LoseRequest: some(0.15), LoseReply: some(0.2), Refuse: some(0.15),
		Repeat: some(0.3), Late: ttl * time.Duration(1+r.IntN(4)),
		LoseSignal: some(0.5),
	}
}

func (w *world) describe() string {
	return fmt.Sprintf("shape %s, %d clients × %d workers × %d rounds, names %v, ttl %v, pace %v, no local %v, breaks %d, outages %d, closing %v\nplan %+v",
		w.shape, w.clients, w.workers, w.rounds, w.names, w.ttl, w.pace, w.noLocal, w.breaks, w.outages, w.closing, w.plan)
}

// wrong notes a violation that no checker of histories would see.
func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Errorf("at %d: "+format, append([]any{w.rec.Now()}, args...)...))
}

// quiet tells whether nothing goes wrong, so that no lease may be lost but by
// its own terms.
func (w *world) quiet() bool { return w.plan == faulty.Plan{} }

// tally sums up what the histories covered: a run in which nothing happened
// proves nothing.
type tally struct {
	mu        sync.Mutex
	failed    int
	histories int
	grants    int
	refused   int
	unknown   int
	handOvers int // within a client
	ends      map[string]int
	faults    map[string]int
	shapes    map[faulty.Shape]int
}

func newTally() *tally {
	return &tally{ends: map[string]int{}, faults: map[string]int{}, shapes: map[faulty.Shape]int{}}
}

func (s *tally) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
}

func (s *tally) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *tally) add(h *history.History, w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.histories++
	s.grants += len(h.Grants)
	s.refused += h.Refused
	s.unknown += h.Unknown
	s.shapes[w.shape]++
	for _, g := range h.Grants {
		s.ends[g.Why]++
		if g.Token&255 > 0 {
			s.handOvers++
		}
	}
	for _, l := range w.lines {
		for what, n := range l.Counts() {
			s.faults[what] += n
		}
	}
}

func (s *tally) report(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("%d histories in %v: %d grants, %d of them handed over, %d refused, %d unknown\nshapes %v\nfaults %v", s.histories, took.Round(time.Millisecond),
		s.grants, s.handOvers, s.refused, s.unknown, s.shapes, s.faults)
	for _, why := range slices.Sorted(maps.Keys(s.ends)) {
		t.Logf("%6d ended by %s", s.ends[why], why)
	}
	if t.Failed() {
		return
	}
	for _, what := range []string{"outage", "refused", "request lost", "reply lost", "repeated", "signal lost"} {
		if s.faults[what] < s.histories/100 {
			t.Errorf("only %d of %q in %d histories", s.faults[what], what, s.histories)
		}
	}
	if s.grants < 3*s.histories {
		t.Errorf("only %d grants in %d histories", s.grants, s.histories)
	}
}

func full() bool { return os.Getenv("HOLDFAST_FULL") == "1" }

// silent keeps the lines about lost leases, of which there are thousands, out
// of the output.
var silent = slog.New(slog.NewTextHandler(io.Discard, nil))
