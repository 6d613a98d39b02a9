package memlock

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// How long a place lives without a heartbeat, and an abandoned owner is
// remembered.
const (
	placeTTL = 30 * time.Second
	tombTTL  = 10 * time.Second
)

// Server is a lock store in memory. Its clients are made by [Server.Store].
type Server struct {
	mu     sync.Mutex
	names  map[string]*entry
	tombs  map[driver.Owner]time.Time // abandoned owners, until when
	last   uint64                     // the last token
	sweeps int                        // operations until the next sweep
	heard  map[string]map[*watch]bool // who watches a key
}

// NewServer makes an empty server. It has no goroutines and need not be closed.
func NewServer() *Server {
	return &Server{names: map[string]*entry{}, tombs: map[driver.Owner]time.Time{}, heard: map[string]map[*watch]bool{}}
}

// entry is the record of one name; a free one is deleted.
type entry struct {
	name    driver.Name
	limit   int // of a semaphore; 0: a lock
	holders []*holder
	queue   []*waiter
}

// holder is a grant.
type holder struct {
	client  *store
	owner   driver.Owner // zero: released, kept for MinHold
	label   string
	mode    driver.Mode
	n       int
	token   uint64
	window  time.Duration // as granted
	since   time.Time
	expires time.Time
	broken  string
	value   string
	seq     uint64 // of the value
}

// waiter is a place in the queue.
type waiter struct {
	client *store
	req    driver.AcquireRequest
	since  time.Time
	alive  time.Time // until when without a heartbeat
}

// mint makes the next token: a hybrid clock, so that tokens grow though no
// record of a free name is kept.
func (s *Server) mint(now time.Time) uint64 {
	s.last = max(s.last+1, uint64(now.UnixMicro()))
	return s.last
}

// entry finds the record of a name, or makes one that is in no map yet.
func (s *Server) entry(n driver.Name) *entry {
	if e := s.names[n.Key]; e != nil {
		return e
	}
	return &entry{name: n}
}

// keep files the record, or forgets it if the name is free.
func (s *Server) keep(e *entry) {
	if len(e.holders) == 0 && len(e.queue) == 0 {
		delete(s.names, e.name.Key)
	} else {
		s.names[e.name.Key] = e
	}
}

// sweep forgets what nobody asked about any more, once in as many operations as
// there are records: a constant share of each.
func (s *Server) sweep(now time.Time) {
	if s.sweeps--; s.sweeps > 0 {
		return
	}
	s.sweeps = len(s.names) + len(s.tombs) + 16
	for _, e := range s.names {
		s.advance(e, now)
	}
	for o, until := range s.tombs {
		if now.After(until) {
			delete(s.tombs, o)
		}
	}
}

// acquire is one attempt.
func (s *Server) acquire(c *store, req *driver.AcquireRequest, now time.Time) (driver.AcquireResult, error) {
	s.sweep(now)
	if until, dead := s.tombs[req.Owner]; dead && now.Before(until) {
		return driver.AcquireResult{Status: driver.Gone}, nil
	}
	e := s.entry(req.Name)
	s.advance(e, now)
	defer s.keep(e)
	if h := e.holder(req.Owner); h != nil { // a repeated request
		return driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: h.token, Window: h.expires.Sub(now)}}, nil
	}
	if w := e.waiter(req.Owner); w != nil {
		return driver.AcquireResult{Status: driver.Waiting, Queue: e.look(w, now)}, nil
	}
	if err := e.conflict(req); err != nil {
		return driver.AcquireResult{}, err
	}
	e.limit = req.Limit
	if e.admits(req.Mode, req.N) && (len(e.queue) == 0 || req.Unfair) {
		h := s.grant(e, c, req, req.TTL, now)
		return driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: h.token, Window: h.window}}, nil
	}
	if !req.Queue {
		return driver.AcquireResult{Status: driver.Held, Queue: e.look(nil, now)}, nil
	}
	w := &waiter{client: c, req: *req, since: now, alive: now.Add(placeTTL)}
	e.queue = append(e.queue, w)
	return driver.AcquireResult{Status: driver.Waiting, Queue: e.look(w, now)}, nil
}

// conflict refuses a second kind of thing under a name in use.
func (e *entry) conflict(req *driver.AcquireRequest) error {
	if len(e.holders) == 0 && len(e.queue) == 0 || e.limit == req.Limit {
		return nil
	}
	kind := func(limit int) string {
		if limit == 0 {
			return "a lock"
		}
		return fmt.Sprintf("a semaphore of %d", limit)
	}
	return &driver.Failure{Kind: driver.Conflict, Err: fmt.Errorf("the name is %s, not %s", kind(e.limit), kind(req.Limit))}
}

// grant makes the owner a holder, with a token from the same step.
func (s *Server) grant(e *entry, c *store, req *driver.AcquireRequest, window time.Duration, now time.Time) *holder {
	h := &holder{
		client: c, owner: req.Owner, label: req.Label, mode: req.Mode, n: req.N,
		token: s.mint(now), window: window, since: now, expires: now.Add(window),
	}
	e.holders = append(e.holders, h)
	s.changed(e)
	return h
}

// admits tells whether one more hold conflicts with none there is.
func (e *entry) admits(mode driver.Mode, n int) bool {
	used := 0
	for _, h := range e.holders {
		if mode == driver.Exclusive || h.mode == driver.Exclusive {
			return false
		}
		used += h.n
	}
	return mode != driver.Permits || used+n <= e.limit
}

// advance drops what has lapsed and grants the head of the queue, and those
// behind it as far as they fit, strictly in order: so a waiting writer stops
// new readers, and a large request is not overtaken by small ones.
func (s *Server) advance(e *entry, now time.Time) {
	held := len(e.holders)
	e.holders = slices.DeleteFunc(e.holders, func(h *holder) bool { return !now.Before(h.expires) })
	if len(e.holders) < held {
		s.changed(e)
	}
	e.queue = slices.DeleteFunc(e.queue, func(w *waiter) bool { return !now.Before(w.alive) })
	for len(e.queue) > 0 && e.admits(e.queue[0].req.Mode, e.queue[0].req.N) {
		w := e.queue[0]
		e.queue = slices.Delete(e.queue, 0, 1)
		h := s.grant(e, w.client, &w.req, w.req.Claim, now)
		w.client.tell(driver.Signal{Kind: driver.GrantSignal, Owner: h.owner, Grant: driver.Grant{Token: h.token, Window: h.window}})
	}
	s.keep(e)
}

// beat keeps a place alive and tells what became of it.
func (s *Server) beat(ref driver.Ref, now time.Time) driver.BeatResult {
	e := s.entry(ref.Name)
	if w := e.waiter(ref.Owner); w != nil {
		w.alive = now.Add(placeTTL)
	}
	s.advance(e, now)
	if h := e.holder(ref.Owner); h != nil {
		return driver.BeatResult{Status: driver.Granted, Grant: driver.Grant{Token: h.token, Window: h.window}}
	}
	if w := e.waiter(ref.Owner); w != nil {
		return driver.BeatResult{Status: driver.Waiting, Queue: e.look(w, now)}
	}
	return driver.BeatResult{Status: driver.Gone}
}

// renew extends the exact grant, and never one that has lapsed.
func (s *Server) renew(req *driver.RenewRequest, now time.Time) driver.RenewResult {
	e := s.entry(req.Name)
	h := e.holder(req.Owner)
	switch {
	case h == nil || !now.Before(h.expires) || req.Token != 0 && req.Token != h.token:
		return driver.RenewResult{Status: driver.Lost}
	case h.broken != "":
		return driver.RenewResult{Status: driver.Broken, Reason: h.broken, Window: h.expires.Sub(now)}
	}
	if end := now.Add(req.TTL); end.After(h.expires) {
		h.expires = end
	}
	if req.Label != "" {
		h.label = req.Label
		s.changed(e)
	}
	return driver.RenewResult{Status: driver.Renewed, Window: h.expires.Sub(now)}
}

// release ends the exact grant or place and hands over to the next.
func (s *Server) release(req *driver.ReleaseRequest, now time.Time) bool {
	if req.Abandon {
		s.tombs[req.Owner] = now.Add(tombTTL)
	}
	e := s.entry(req.Name)
	if i := slices.IndexFunc(e.queue, func(w *waiter) bool { return w.req.Owner == req.Owner }); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
		s.advance(e, now)
		return true
	}
	h := e.holder(req.Owner)
	if h == nil || !now.Before(h.expires) || req.Token != 0 && req.Token != h.token {
		return false
	}
	if req.Keep > 0 {
		h.owner, h.label, h.expires = driver.Owner{}, h.label+" (released)", now.Add(req.Keep)
		s.changed(e)
		return true
	}
	e.holders = slices.DeleteFunc(e.holders, func(other *holder) bool { return other == h })
	s.changed(e)
	s.advance(e, now)
	return true
}

func (e *entry) holder(o driver.Owner) *holder {
	for _, h := range e.holders {
		if h.owner == o && o != (driver.Owner{}) {
			return h
		}
	}
	return nil
}

func (e *entry) waiter(o driver.Owner) *waiter {
	for _, w := range e.queue {
		if w.req.Owner == o {
			return w
		}
	}
	return nil
}

// look is what w, or a stranger, is told about the name.
func (e *entry) look(w *waiter, now time.Time) driver.Queue {
	q := driver.Queue{Ahead: len(e.queue)}
	if i := slices.Index(e.queue, w); i >= 0 {
		q.Ahead = i
	}
	for i, h := range e.holders {
		if left := h.expires.Sub(now); i == 0 || left < q.Remaining {
			q.Remaining = left
		}
	}
	if len(e.holders) > 0 {
		h := e.holders[0].describe(now)
		q.Holder = &h
	}
	return q
}

func (h *holder) describe(now time.Time) driver.Holder {
	return driver.Holder{
		Owner: h.owner, Label: h.label, Token: h.token, Mode: h.mode, Permits: h.n,
		Held: now.Sub(h.since), Left: h.expires.Sub(now), Broken: h.broken, Value: h.value, Seq: h.seq,
	}
}
