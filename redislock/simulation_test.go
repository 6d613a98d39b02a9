package redislock

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A random simulation of the protocol: native attempts, the queue, readers, hand-over with a
// claim window and within a process, trust from the last answered request, cancels with a
// tomb, repeated abandons, forced breaks, restarts without data and failovers that lose the
// latest writes. Requests and answers are lost, late, doubled and reordered, processes pause,
// clocks run at different rates. What holders believe never overlaps, tokens grow, and no
// native attempt passes the queue. Times are seconds.
const (
	simTTL   = 1.0
	simClaim = 0.6
	simPlace = 2.0
	simDrift = 0.01
	simEpoch = 1_700_000_000_000_000 // of the server's clock, in µs
)

func simTrust(window float64) float64 { return window*(1-simDrift) - max(0.05, window/50) }

// simRecord has one hold, or those of readers.
type simRecord struct {
	shared bool
	holds  map[string]*simHold
	phys   float64
}

type simHold struct {
	token int64 // 0: not known
	exp   float64
}

type simPlaceOf struct {
	owner  string
	shared bool
	alive  float64
}

// simServer is what the server does, each method in one step.
type simServer struct {
	*sim
	rec    *simRecord
	queue  []simPlaceOf
	tombs  map[string]bool
	bucket int64 // 0: missing
	born   float64
}

func (s *simServer) there() bool {
	if s.rec != nil && s.rec.phys <= s.now {
		s.rec = nil
	}
	return s.rec != nil
}

// hold is the one of an owner that has not lapsed.
func (s *simServer) hold(owner string) *simHold {
	if !s.there() || s.rec.holds[owner] == nil || s.rec.holds[owner].exp <= s.now {
		return nil
	}
	return s.rec.holds[owner]
}

// admits tells whether one more hold conflicts with none.
func (s *simServer) admits(shared bool) bool {
	if !s.there() {
		return true
	}
	for owner, h := range s.rec.holds {
		if h.exp <= s.now {
			delete(s.rec.holds, owner)
		}
	}
	return len(s.rec.holds) == 0 || s.rec.shared && shared
}

func (s *simServer) incr() int64 { s.bucket++; return s.bucket }

func (s *simServer) mint() int64 {
	s.bucket = max(s.bucket+1, simEpoch+int64(s.now*1e6))
	return s.bucket
}

func (s *simServer) keep() {
	s.queue = slices.DeleteFunc(s.queue, func(p simPlaceOf) bool { return p.alive <= s.now })
	if s.rec == nil {
		return
	}
	s.rec.phys = 0
	for _, h := range s.rec.holds {
		s.rec.phys = max(s.rec.phys, h.exp)
	}
	if s.mutant != "record ends under its queue" {
		for _, p := range s.queue {
			s.rec.phys = max(s.rec.phys, p.alive)
		}
	}
}

// grant is for one whom the server admits.
func (s *simServer) grant(owner string, shared bool, window float64) int64 {
	if !s.there() || len(s.rec.holds) == 0 {
		s.rec = &simRecord{shared: shared, holds: map[string]*simHold{}}
		s.born = s.now
	}
	h := &simHold{s.mint(), s.now + window}
	s.rec.holds[owner] = h
	if s.mutant == "one expiry for all readers" {
		for _, other := range s.rec.holds {
			other.exp = h.exp
		}
	}
	s.keep()
	return h.token
}

func (s *simServer) advance() {
	s.keep()
	for len(s.queue) > 0 && s.admits(s.queue[0].shared) {
		next, window := s.queue[0], simClaim
		if s.mutant == "no claim window" {
			window = simTTL
		}
		s.queue = s.queue[1:]
		s.message(next.owner, s.grant(next.owner, next.shared, window))
	}
}

func (s *simServer) setNX(owner string) bool {
	if s.there() {
		return false
	}
	if slices.ContainsFunc(s.queue, func(p simPlaceOf) bool { return p.alive > s.now }) {
		s.fault = "a native attempt has passed those who wait"
	}
	s.rec = &simRecord{holds: map[string]*simHold{owner: {0, s.now + simTTL}}, phys: s.now + simTTL}
	s.born = s.now
	return true
}

// simAnswer is any answer: a kind, a token, and in which era it was given.
type simAnswer struct {
	kind  string
	token int64
	era   int
}

func (s *simServer) acquire(owner string, shared, queue bool) simAnswer {
	if s.tombs[owner] {
		return simAnswer{kind: "gone"}
	}
	s.advance()
	h := s.hold(owner)
	switch {
	case h != nil:
		return s.known(h)
	case s.admits(shared) && len(s.queue) == 0:
		return simAnswer{kind: "got", token: s.grant(owner, shared, simTTL)}
	case !queue:
		return simAnswer{kind: "gone"}
	}
	if !s.waits(owner) {
		s.queue = append(s.queue, simPlaceOf{owner, shared, s.now + simPlace})
	}
	s.keep()
	return simAnswer{kind: "waiting"}
}

// known answers with a grant that there was, of which the token is made now if it was not
// known.
func (s *simServer) known(h *simHold) simAnswer {
	if h.token == 0 {
		h.token = s.mint()
	}
	return simAnswer{kind: "granted", token: h.token}
}

func (s *simServer) waits(owner string) bool {
	return slices.ContainsFunc(s.queue, func(p simPlaceOf) bool { return p.owner == owner })
}

func (s *simServer) beat(owner string) simAnswer {
	for i := range s.queue {
		if s.queue[i].owner == owner {
			s.queue[i].alive = s.now + simPlace
		}
	}
	s.advance()
	s.keep()
	switch h := s.hold(owner); {
	case h != nil:
		return s.known(h)
	case s.waits(owner):
		return simAnswer{kind: "waiting"}
	}
	return simAnswer{kind: "gone"}
}

func (s *simServer) renew(owner string, token int64) simAnswer {
	h := s.hold(owner)
	if h == nil {
		return simAnswer{kind: "lost"}
	}
	if h.token == 0 {
		h.token = token
	}
	h.exp = max(h.exp, s.now+simTTL)
	s.keep()
	return simAnswer{kind: "ok"}
}

func (s *simServer) release(owner string, abandon bool) simAnswer {
	if s.there() && s.rec.holds[owner] != nil {
		if delete(s.rec.holds, owner); len(s.rec.holds) == 0 {
			s.rec = nil
		}
		s.advance()
		return simAnswer{kind: "ok"}
	}
	if abandon {
		s.queue = slices.DeleteFunc(s.queue, func(p simPlaceOf) bool { return p.owner == owner })
		s.tombs[owner] = true
		s.keep()
	}
	return simAnswer{kind: "no"}
}

// simBelief is what a client trusted.
type simBelief struct {
	by         *simClient
	shared     bool
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
	highest              int64
	highestAlone         int64 // of exclusive holds
	readers              bool
	grants, bare         int
	local, shared        int
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

// believe notes that a client trusts a grant from now on. What conflicts has ended, and had
// a smaller token; readers who hold together may learn of theirs in any order.
func (s *sim) believe(c *simClient, end float64, token int64) *simBelief {
	s.beliefs = slices.DeleteFunc(s.beliefs, func(b *simBelief) bool { return b.end <= s.now+1e-9 })
	for _, b := range s.beliefs {
		if b.by != c && (!b.shared || !c.shared) {
			s.fault = fmt.Sprintf("overlap: %d until %.3f, %d from %.3f", b.by.id, b.end, c.id, s.now)
		}
	}
	least := s.highest
	if c.shared {
		least = s.highestAlone
	}
	if token <= least {
		s.fault = fmt.Sprintf("token %d after %d", token, least)
	}
	if s.highest = max(s.highest, token); !c.shared {
		s.highestAlone = token
	}
	b := &simBelief{c, c.shared, s.now, end, token}
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

// simClient is one process with one caller.
type simClient struct {
	*sim
	id, n    int
	rate     float64
	paused   float64
	state    string
	owner    string
	shared   bool
	sent     float64 // on its own clock
	deadline float64
	token    int64
	turn     int64 // how often it was handed over within the process
	belief   *simBelief
	broken   bool
	life     int   // of the server that it is connected to
	dials    int   // of its own
	lifted   int   // the dial after which a script of its own minted; 0: none
	other    int64 // a token of another attempt
}

func (c *simClient) clock() float64 { return c.now * c.rate }

func (c *simClient) run(f func()) {
	if c.paused > c.now {
		c.after(c.paused-c.now, func() { c.run(f) })
		return
	}
	f()
}

// dial makes the connection anew if the server is another.
func (c *simClient) dial() {
	if c.life != c.sim.life || c.dials == 0 {
		c.life = c.sim.life
		c.dials++
	}
}

func (c *simClient) maybePause() {
	if c.chance(c.pausing) {
		c.paused = c.now + c.random.ExpFloat64()*[]float64{.2, 2}[c.random.IntN(2)]
	}
}

func (c *simClient) start() {
	c.n++
	c.owner = fmt.Sprint(c.id, ".", c.n)
	c.owners[c.owner] = c
	c.state, c.sent, c.broken = "try", c.clock(), false
	c.shared = c.readers && c.chance(.6)
	c.dial()
	if !c.shared && (c.lifted == c.dials || c.mutant == "dials unseen" && c.lifted > 0) {
		c.native(c.owner)
		return
	}
	c.script(c.owner)
}

// native is SET NX and INCR in one flush, between which others' commands may come.
func (c *simClient) native(owner string) {
	dials, token := c.dials, int64(0)
	c.call(c, func() *simAnswer {
		if !c.srv.setNX(owner) {
			return &simAnswer{kind: "held"}
		}
		pause := c.delay() * .001
		if c.chance(.1) {
			pause = c.delay() * .3
		}
		life := c.sim.life
		c.after(pause, func() {
			if life == c.sim.life {
				token = c.srv.incr()
			}
		})
		return &simAnswer{kind: "set"}
	}, func(a *simAnswer) { c.setAnswered(owner, dials, a, &token) }, .9)
}

func (c *simClient) setAnswered(owner string, dials int, a *simAnswer, token *int64) {
	switch {
	case c.owner != owner || c.state != "try":
		if a != nil && a.kind == "set" {
			c.giveUp(owner, 0)
		}
	case a == nil:
		c.cancel(owner)
	case a.kind == "held":
		c.script(owner)
	case *token == 0 && c.mutant == "token of another attempt":
		c.bare++
		c.got(owner, c.other, simTTL, c.sent, a.era)
	case *token == 0: // not there yet, or its connection broke
		c.after(.001, func() {
			c.run(func() {
				if c.now*c.rate > c.sent+.9 {
					a = nil
				}
				c.setAnswered(owner, dials, a, token)
			})
		})
	case c.mutant != "dials unseen" && dials != c.dials, *token < simEpoch/2 && c.mutant != "small tokens":
		c.script(owner)
	default:
		c.bare++
		c.other = *token
		c.got(owner, *token, simTTL, c.sent, a.era)
	}
}

// script is the attempt that always may be made.
func (c *simClient) script(owner string) {
	sent, shared := c.clock(), c.shared
	c.state = "script"
	dials := c.dials
	c.call(c, func() *simAnswer { a := c.srv.acquire(owner, shared, true); return &a }, func(a *simAnswer) {
		switch {
		case c.owner != owner || c.state != "script" && c.state != "wait":
		case a == nil || a.kind == "gone":
			c.cancel(owner)
		case a.kind == "got":
			c.lifted = dials
			c.got(owner, a.token, simTTL, sent, a.era)
		case a.kind == "granted": // by a copy, or the native attempt: trusted for what is surely left
			c.cancel(owner)
		default:
			c.sent, c.state = sent, "wait"
			c.after(.3, func() { c.run(func() { c.beat(owner) }) })
			if c.chance(.1) {
				c.after(3*c.random.Float64(), func() {
					c.run(func() {
						if c.owner == owner && c.state == "wait" {
							c.cancel(owner)
						}
					})
				})
			}
		}
	}, .9)
}

func (c *simClient) beat(owner string) {
	if c.owner != owner || c.state != "wait" {
		return
	}
	sent := c.clock()
	c.call(c, func() *simAnswer { a := c.srv.beat(owner); return &a }, func(a *simAnswer) {
		switch {
		case c.owner != owner || c.state != "wait":
			return
		case a != nil && a.kind == "gone":
			c.cancel(owner)
			return
		case a != nil && a.kind == "granted":
			c.claim(owner, a.token)
			return
		case a != nil && c.mutant == "trust from the heartbeat's answer":
			c.sent = c.clock()
		case a != nil:
			c.sent = max(c.sent, sent)
		}
		c.after(.3, func() { c.run(func() { c.beat(owner) }) })
	}, .5)
}

// told is the message of a grant.
func (c *simClient) told(owner string, token int64, era int) {
	if c.owner != owner || c.state != "wait" {
		return
	}
	switch left := c.sent + simTrust(simClaim) - c.clock(); {
	case c.mutant == "no claim window":
		c.got(owner, token, simTTL, c.clock(), era)
	case left > simClaim/2:
		c.got(owner, token, simClaim, c.sent, era)
	default:
		c.claim(owner, token)
	}
}

func (c *simClient) claim(owner string, token int64) {
	c.state = "claim"
	sent := c.clock()
	c.call(c, func() *simAnswer { a := c.srv.renew(owner, token); return &a }, func(a *simAnswer) {
		switch {
		case c.owner != owner || c.state != "claim":
		case a == nil || a.kind != "ok":
			c.cancel(owner)
		default:
			c.got(owner, token, simTTL, sent, a.era)
		}
	}, .5)
}

func (c *simClient) got(owner string, token int64, window, sent float64, era int) {
	if c.mutant == "trust from the answer" {
		sent = c.clock()
	}
	deadline := sent + simTrust(window)
	if deadline <= c.clock() || era != c.era {
		c.cancel(owner)
		return
	}
	c.state, c.deadline, c.token, c.turn = "held", deadline, token, 0
	if c.shared {
		c.sim.shared++
	}
	c.belief = c.believe(c, deadline/c.rate, token*256)
	if c.chance(.7) {
		c.renew(owner)
	}
	c.work(owner)
}

// work holds for a while.
func (c *simClient) work(owner string) {
	hold := []float64{.001, .01, .05, .5, 3}[c.random.IntN(5)] * c.random.Float64()
	c.after(hold, func() { c.run(func() { c.finish(owner) }) })
	c.maybePause()
}

func (c *simClient) renew(owner string) {
	if c.owner != owner || c.state != "held" {
		return
	}
	sent, token := c.clock(), c.token
	c.call(c, func() *simAnswer { a := c.srv.renew(owner, token); return &a }, func(a *simAnswer) {
		if c.owner != owner || c.state != "held" || c.clock() >= c.deadline || c.broken {
			return
		}
		again := .1
		if a != nil {
			again = simTTL / 3
			if a.kind == "ok" {
				c.deadline = max(c.deadline, sent+simTrust(simTTL))
				c.belief.end = c.deadline / c.rate
			}
		}
		c.after(again, func() { c.run(func() { c.renew(owner) }) })
	}, simTTL/3)
}

func (c *simClient) finish(owner string) {
	if c.owner != owner || c.state != "held" {
		return
	}
	c.belief.end = min(c.belief.end, c.now)
	if c.chance(.4) && c.mayHandOver() {
		c.turn++
		c.local++
		c.belief = c.believe(c, c.deadline/c.rate, c.token*256+c.turn)
		c.work(owner)
		return
	}
	c.cancel(owner)
}

// mayHandOver tells whether the lease can go to another caller of this process, without the
// server: while half of the TTL is left, and not for ever.
func (c *simClient) mayHandOver() bool {
	left := c.deadline - c.clock()
	if c.mutant == "hand-over of what has lapsed" {
		left = simTTL
	}
	return !c.shared && !c.broken && c.turn < 255 && left > simTTL/2
}

func (c *simClient) cancel(owner string) {
	c.giveUp(owner, 0)
	c.state, c.owner = "idle", ""
	c.after([]float64{0, .01, 1}[c.random.IntN(3)]*c.random.Float64(), func() { c.run(c.start) })
	c.maybePause()
}

func (c *simClient) giveUp(owner string, n int) {
	c.call(c, func() *simAnswer { a := c.srv.release(owner, true); return &a }, func(a *simAnswer) {
		if a == nil && n < 20 {
			c.giveUp(owner, n+1)
		}
	}, .5)
}

// simulate plays one history.
func simulate(seed uint64, mutant string) *sim {
	r := rand.New(rand.NewPCG(seed, 3))
	s := &sim{
		random: r, mutant: mutant, owners: map[string]*simClient{},
		readers: r.IntN(2) == 0,
		lossy:   []float64{0, 0, .02, .1, .3}[r.IntN(5)], slow: []float64{.001, .01, .05, .15}[r.IntN(4)], pausing: []float64{0, .01, .05}[r.IntN(3)],
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
	var grants, bare, local, shared int
	for seed := range uint64(200) {
		s := simulate(seed, "")
		if s.fault != "" {
			t.Fatalf("seed %d, at %.3f s: %s", seed, s.now, s.fault)
		}
		grants, bare, local, shared = grants+s.grants, bare+s.bare, local+s.local, shared+s.shared
	}
	if grants < 10_000 || bare < 1_000 || local < 1_000 || shared < 1_000 {
		t.Errorf("only %d grants, %d of them by native commands, %d within a process, %d of readers", grants, bare, local, shared)
	}
}

// Each of these is a thought that looks harmless.
func TestSimulationFindsFaults(t *testing.T) {
	t.Parallel()
	for _, mutant := range []string{
		"no claim window", "trust from the answer", "token of another attempt", "record ends under its queue",
		"trust from the heartbeat's answer", "dials unseen", "small tokens", "one expiry for all readers", "hand-over of what has lapsed",
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
