package redislock

import "fmt"

// simClient is one process with one caller.
type simClient struct {
	*sim
	id, n    int
	rate     float64
	paused   float64
	state    string
	owner    string
	takes    int     // permits
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
	switch c.takes = c.limit; {
	case c.permits:
		c.takes = 1 + c.random.IntN(c.limit)
	case c.readers && c.chance(.6):
		c.takes = 1
	}
	c.dial()
	if c.exclusive() && (c.lifted == c.dials || c.mutant == "dials unseen" && c.lifted > 0) {
		c.native(c.owner)
		return
	}
	c.script(c.owner)
}

func (c *simClient) exclusive() bool { return !c.permits && c.takes == c.limit }

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
	sent, n := c.clock(), c.takes
	c.state = "script"
	dials := c.dials
	c.call(c, func() *simAnswer { a := c.srv.acquire(owner, n, true); return &a }, func(a *simAnswer) {
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
	switch {
	case c.permits && c.takes < c.limit:
		c.some++
	case c.takes < c.limit:
		c.shared++
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
	return c.exclusive() && !c.broken && c.turn < 255 && left > simTTL/2
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
