package redislock

import (
	"fmt"
	"math"
	"slices"
)

// simRecord has the holds, and counts them as the record does: used permits, and when the
// first of them may lapse, or earlier.
type simRecord struct {
	holds         map[string]*simHold
	used          int
	soonest, phys float64
}

type simHold struct {
	token int64 // 0: not known
	n     int   // permits
	exp   float64
}

type simPlaceOf struct {
	owner  string
	n      int
	number int // in the order of arrival
	alive  float64
}

// simServer is what the server does, each method in one step.
type simServer struct {
	*sim
	rec    *simRecord
	queue  []simPlaceOf
	tombs  map[string]bool
	bucket int64 // 0: missing
	minted int64 // the latest token of a grant
	places int   // so many there were
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

// lapse drops the holds whose time is over, if there can be one.
func (s *simServer) lapse() {
	if !s.there() || s.rec.soonest > s.now {
		return
	}
	used, soonest := 0, math.Inf(1)
	for owner, h := range s.rec.holds {
		if h.exp <= s.now {
			delete(s.rec.holds, owner)
			continue
		}
		used, soonest = used+h.n, min(soonest, h.exp)
	}
	if s.mutant == "permits of the lapsed stay taken" && len(s.rec.holds) > 0 {
		used = s.rec.used
	}
	s.rec.used, s.rec.soonest = used, soonest
}

// admits tells whether so many more permits are free.
func (s *simServer) admits(n int) bool { return !s.there() || s.rec.used+n <= s.limit }

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

// grant is for one whom the server admits; number is that of his place, if he had one.
func (s *simServer) grant(owner string, n, number int, window float64) int64 {
	if !s.there() || len(s.rec.holds) == 0 {
		s.rec = &simRecord{holds: map[string]*simHold{}, soonest: math.Inf(1)}
		s.born = s.now
	}
	if slices.ContainsFunc(s.queue, func(p simPlaceOf) bool { return p.alive > s.now && p.number < number }) {
		s.fault = "a grant has passed those who wait"
	}
	h := &simHold{s.mint(), n, s.now + window}
	if h.token <= s.minted {
		s.fault = fmt.Sprintf("token %d minted after %d", h.token, s.minted)
	}
	s.minted = h.token
	s.rec.holds[owner] = h
	s.rec.used, s.rec.soonest = s.rec.used+n, min(s.rec.soonest, h.exp)
	if s.mutant == "one expiry for all readers" {
		for _, other := range s.rec.holds {
			other.exp = h.exp
		}
	}
	s.keep()
	return h.token
}

func (s *simServer) advance() {
	s.lapse()
	s.keep()
	for i := s.next(); i >= 0; i = s.next() {
		heir, window := s.queue[i], simClaim
		if s.mutant == "no claim window" {
			window = simTTL
		}
		s.queue = slices.Delete(s.queue, i, i+1)
		s.message(heir.owner, s.grant(heir.owner, heir.n, heir.number, window))
	}
	s.check()
}

// next is the place of who is to be granted, -1: nobody.
func (s *simServer) next() int {
	for i, p := range s.queue {
		if s.admits(p.n) {
			return i
		}
		if s.mutant != "few permits pass many" {
			break
		}
	}
	return -1
}

// check counts anew what is held.
func (s *simServer) check() {
	held := 0
	if s.there() {
		for _, h := range s.rec.holds {
			if h.exp > s.now {
				held += h.n
			}
		}
	}
	if held > s.limit {
		s.fault = fmt.Sprintf("%d permits of %d are held", held, s.limit)
	}
	if len(s.queue) > 0 && held+s.queue[0].n <= s.limit {
		s.fault = fmt.Sprintf("%d permits of %d are held, and the first waits for %d", held, s.limit, s.queue[0].n)
	}
}

func (s *simServer) setNX(owner string) bool {
	if s.there() {
		return false
	}
	if slices.ContainsFunc(s.queue, func(p simPlaceOf) bool { return p.alive > s.now }) {
		s.fault = "a native attempt has passed those who wait"
	}
	end := s.now + simTTL
	s.rec = &simRecord{holds: map[string]*simHold{owner: {0, s.limit, end}}, used: s.limit, soonest: end, phys: end}
	s.born = s.now
	return true
}

// simAnswer is any answer: a kind, a token, and in which era it was given.
type simAnswer struct {
	kind  string
	token int64
	era   int
}

func (s *simServer) acquire(owner string, n int, queue bool) simAnswer {
	if s.tombs[owner] {
		return simAnswer{kind: "gone"}
	}
	s.advance()
	h := s.hold(owner)
	switch {
	case h != nil:
		return s.known(h)
	case s.admits(n) && len(s.queue) == 0:
		return simAnswer{kind: "got", token: s.grant(owner, n, math.MaxInt, simTTL)}
	case !queue:
		return simAnswer{kind: "gone"}
	}
	if !s.waits(owner) {
		s.places++
		s.queue = append(s.queue, simPlaceOf{owner, n, s.places, s.now + simPlace})
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
	if h := s.hold(owner); h != nil {
		s.rec.used -= h.n
		if s.mutant == "a release gives one permit back" {
			s.rec.used += h.n - 1
		}
		if delete(s.rec.holds, owner); len(s.rec.holds) == 0 {
			s.rec = nil
		}
		s.advance()
		return simAnswer{kind: "ok"}
	}
	if s.mutant == "a repeated release gives back again" && s.there() {
		s.rec.used--
	}
	if abandon {
		s.queue = slices.DeleteFunc(s.queue, func(p simPlaceOf) bool { return p.owner == owner })
		s.tombs[owner] = true
		s.keep()
	}
	return simAnswer{kind: "no"}
}
