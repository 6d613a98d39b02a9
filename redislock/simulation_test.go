package redislock

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A random simulation of the protocol: native attempts, the queue, readers, permits, hand-over with a
// claim window and within a process, trust from the last answered request, cancels with a
// tomb, repeated abandons, forced breaks, restarts without data and failovers that lose the
// latest writes. Requests and answers are lost, late, doubled and reordered, processes pause,
// clocks run at different rates. What holders believe never overlaps, tokens grow, nobody passes
// those who wait, and the first of them waits for no more than what is held. Times are seconds.
//
// All is counted in permits: an exclusive hold is all there are, and a reader has one of so many
// that they never end.
const (
	simReaders = 1000
	simTTL     = 1.0
	simClaim   = 0.6
	simPlace   = 2.0
	simDrift   = 0.01
	simEpoch   = 1_700_000_000_000_000 // of the server's clock, in µs
)

func simTrust(window float64) float64 { return window*(1-simDrift) - max(0.05, window/50) }

// simBelief is what a client trusted.
type simBelief struct {
	by         *simClient
	n          int
	start, end float64
	token      int64
}

type simEvent struct {
	at  float64
	seq int
	run func()
}

type simEvents []simEvent

func (e simEvents) Len() int { return len(e) }
func (e simEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e simEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)   { *e = append(*e, x.(simEvent)) } //nolint:errcheck,forcetypeassert // nothing else is pushed
func (e *simEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

type sim struct {
	random               *rand.Rand
	mutant               string
	now                  float64
	events               simEvents
	seq                  int
	srv                  *simServer
	owners               map[string]*simClient
	beliefs              []*simBelief
	highest              map[int]int64 // token, of those that hold so many permits
	limit                int
	permits              bool // not readers and writers
	readers              bool // not writers alone
	grants, bare         int
	local, shared, some  int // the latter of some permits
	lossy, slow, pausing float64
	life                 int // of the server: requests of an earlier one are lost
	// era ends when a grant is taken from its holder, by a person or the loss of data:
	// he may go on beside the next, and be told of it late.
	era   int
	fault string
}

func (s *sim) after(d float64, run func()) {
	s.seq++
	heap.Push(&s.events, simEvent{s.now + d, s.seq, run})
}

func (s *sim) chance(p float64) bool { return s.random.Float64() < p }

func (s *sim) delay() float64 {
	d := s.random.ExpFloat64() * s.slow
	if s.chance(.01) {
		d *= 20
	}
	return d
}

func (s *sim) message(owner string, token int64) {
	if c, era := s.owners[owner], s.era; c != nil && !s.chance(s.lossy) {
		s.after(s.delay(), func() { c.run(func() { c.told(owner, token, era) }) })
	}
}

// call runs op at the server and then answer at the client; nil: no answer came.
func (s *sim) call(c *simClient, op func() *simAnswer, answer func(*simAnswer), timeout float64) {
	done, life := false, s.life
	c.dial()
	finish := func(a *simAnswer) {
		if !done {
			done = true
			c.run(func() { answer(a) })
		}
	}
	serve := func(then func(*simAnswer)) func() {
		return func() {
			if s.life == life { // else its connection is gone
				a := op()
				a.era = s.era
				then(a)
			}
		}
	}
	if !s.chance(s.lossy) {
		s.after(s.delay(), serve(func(a *simAnswer) {
			if !s.chance(s.lossy) {
				s.after(s.delay(), func() { finish(a) })
			}
		}))
		if s.chance(s.lossy / 2) { // a copy
			s.after(3*s.delay(), serve(func(*simAnswer) {}))
		}
	}
	s.after(timeout/c.rate, func() { finish(nil) })
}

// believe notes that a client trusts a grant from now on. All that are trusted are no more than
// there are, and who had permits that these could not be held beside has ended, and had a smaller token;
// those who hold together may learn of theirs in any order.
func (s *sim) believe(c *simClient, end float64, token int64) *simBelief {
	s.beliefs = slices.DeleteFunc(s.beliefs, func(b *simBelief) bool { return b.end <= s.now+1e-9 })
	sum := c.takes
	for _, b := range s.beliefs {
		if b.by == c {
			continue
		}
		if sum += b.n; sum > s.limit {
			s.fault = fmt.Sprintf("overlap: %d until %.3f, %d from %.3f, %d permits of %d", b.by.id, b.end, c.id, s.now, sum, s.limit)
		}
	}
	for n, least := range s.highest {
		if n+c.takes > s.limit && token <= least {
			s.fault = fmt.Sprintf("token %d after %d", token, least)
		}
	}
	s.highest[c.takes] = max(s.highest[c.takes], token)
	b := &simBelief{c, c.takes, s.now, end, token}
	s.beliefs = append(s.beliefs, b)
	s.grants++
	return b
}

// forget is a server that comes back without its data, or one that has not got the
// latest of it. Who held before may hold beside the next: nobody promises more.
func (s *sim) forget() {
	s.srv.rec, s.srv.queue, s.srv.tombs = nil, nil, map[string]bool{}
	switch s.random.IntN(3) {
	case 0: // FLUSHALL, which no connection notices
		s.srv.bucket = 0
	case 1:
		s.life++
		s.srv.bucket = 0
	default:
		s.life++
		s.srv.bucket = max(0, s.srv.bucket-int64(s.random.IntN(50)))
	}
	s.excuse()
	s.after(1+10*s.random.Float64(), s.forget)
}

// breakIt is a person who has seen the holder, and forces him out.
func (s *sim) breakIt() {
	if s.srv.there() && s.now > s.srv.born+.3 { // readers all at once
		s.srv.rec = nil
		s.excuse()
		s.srv.advance()
	}
	s.after(1+5*s.random.Float64(), s.breakIt)
}

func (s *sim) excuse() {
	s.era++
	for _, b := range s.beliefs {
		b.end = min(b.end, s.now)
		b.by.broken = true
	}
}

// simulate plays one history.
func simulate(seed uint64, mutant string) *sim {
	r := rand.New(rand.NewPCG(seed, 3))
	s := &sim{
		random: r, mutant: mutant, owners: map[string]*simClient{}, highest: map[int]int64{}, limit: simReaders,
		lossy: []float64{0, 0, .02, .1, .3}[r.IntN(5)], slow: []float64{.001, .01, .05, .15}[r.IntN(4)], pausing: []float64{0, .01, .05}[r.IntN(3)],
	}
	switch r.IntN(4) {
	case 0:
		s.permits, s.limit = true, 2+r.IntN(4)
	case 1:
		s.readers = true
	}
	s.srv = &simServer{sim: s, tombs: map[string]bool{}}
	for i := range []int{2, 3, 6, 12}[r.IntN(4)] {
		c := &simClient{sim: s, id: i, rate: 1 + simDrift/2.1*(2*r.Float64()-1)}
		s.after(r.Float64(), c.start)
	}
	if r.IntN(3) == 0 {
		s.after(5*r.Float64(), s.forget)
	}
	if r.IntN(3) == 0 {
		s.after(5*r.Float64(), s.breakIt)
	}
	for len(s.events) > 0 && s.now < 60 && s.fault == "" {
		e := heap.Pop(&s.events).(simEvent) //nolint:errcheck,forcetypeassert // nothing else is pushed
		s.now = e.at
		e.run()
	}
	return s
}

func TestSimulation(t *testing.T) {
	t.Parallel()
	var grants, bare, local, shared, some int
	for seed := range uint64(200) {
		s := simulate(seed, "")
		if s.fault != "" {
			t.Fatalf("seed %d, at %.3f s: %s", seed, s.now, s.fault)
		}
		grants, bare, local, shared, some = grants+s.grants, bare+s.bare, local+s.local, shared+s.shared, some+s.some
	}
	if min(grants/10, bare, local, shared, some) < 1_000 {
		t.Errorf("only %d grants, %d of them by native commands, %d within a process, %d of readers, %d of some permits", grants, bare, local, shared, some)
	}
}

// Each of these is a thought that looks harmless.
func TestSimulationFindsFaults(t *testing.T) {
	t.Parallel()
	for _, mutant := range []string{
		"no claim window", "trust from the answer", "token of another attempt", "record ends under its queue",
		"trust from the heartbeat's answer", "dials unseen", "small tokens", "one expiry for all readers", "hand-over of what has lapsed",
		"permits of the lapsed stay taken", "a release gives one permit back", "few permits pass many", "a repeated release gives back again",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(1000) {
				if simulate(seed, mutant).fault != "" {
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}
