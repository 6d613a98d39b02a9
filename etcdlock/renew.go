package etcdlock

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// asked is one renewal on its way.
type asked struct {
	req *driver.RenewRequest
	e   *entry // nil if it is answered
	res driver.RenewResult
}

func (a *asked) fail(err error) { a.e, a.res = nil, driver.RenewResult{Err: err} }

// lost answers that the grant is not the owner's any more, and why if that is
// still known.
func (a *asked) lost(ctx context.Context, s *store) {
	a.e, a.res = nil, driver.RenewResult{Status: driver.Lost}
	if a.req.TTL > 0 {
		a.res.Reason = s.forced(ctx, a.req.Name.Key, a.req.Owner)
	}
}

// Renew keeps the leases of the grants alive, each once, and answers from what
// it knows: a watch on its key tells when a grant ends otherwise or is revoked.
// It asks about those that have no such watch yet.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	all := make([]*asked, len(reqs))
	for i := range reqs {
		all[i] = &asked{req: &reqs[i]}
	}
	s.present(ctx, all)
	for _, a := range all {
		if a.e == nil {
			continue
		}
		if err := s.suit(ctx, a.e, a.req); err != nil {
			a.fail(err)
		} else if l := s.book.leaseOf(a.e); a.req.TTL > 0 {
			if err := s.pool.prove(ctx, l, l.window()/100); err != nil {
				a.fail(err)
			}
		}
	}
	s.confirm(ctx, all)
	results := make([]driver.RenewResult, len(reqs))
	for i, a := range all {
		if a.e != nil {
			if a.res = s.book.renewed(a.e); a.res.Status == driver.Lost {
				a.lost(ctx, s)
			}
		}
		results[i] = a.res
	}
	return results
}

// present finds what the requests are about, in the cluster if need be. What is
// not the owner's is answered Lost.
func (s *store) present(ctx context.Context, all []*asked) {
	var unknown []*asked
	s.book.mu.Lock()
	for _, a := range all {
		if a.e = s.book.entries[a.req.Owner]; a.e == nil {
			unknown = append(unknown, a)
		}
	}
	s.book.mu.Unlock()
	for part := range slices.Chunk(unknown, maxBatch) {
		s.find(ctx, part)
	}
	for _, a := range all {
		if a.res.Err == nil && (a.e == nil || a.req.Token != 0 && a.req.Token != uint64(a.e.created)) { //nolint:gosec // a revision
			a.lost(ctx, s)
		}
	}
}

// find looks for what is asked about of which this client knows nothing.
func (s *store) find(ctx context.Context, unknown []*asked) {
	ops := make([]clientv3.Op, 0, len(unknown))
	for _, a := range unknown {
		ops = append(ops, kindOp(&a.req.Ref))
	}
	answer, err := s.commit(ctx, txn{then: ops})
	if half := len(unknown) / 2; half > 0 && asWhole(err) {
		s.find(ctx, unknown[:half])
		s.find(ctx, unknown[half:])
		return
	}
	for k, a := range unknown {
		if err != nil {
			a.fail(err)
			continue
		}
		p := findOwner(answer.Responses[k].GetResponseRange().Kvs, &a.req.Owner)
		if p == nil {
			continue
		}
		e, err := s.know(ctx, p, a.req.Name)
		if a.e = e; err != nil {
			a.fail(err)
		}
	}
}

// suit puts the record again where the request wants a longer lease than it hangs
// on, or another label. Its place in the order stays.
func (s *store) suit(ctx context.Context, e *entry, req *driver.RenewRequest) error {
	for {
		s.book.mu.Lock()
		p, l, claim := *e.place, e.lease, e.claim
		s.book.mu.Unlock()
		longer := seconds(req.TTL) > l.ttl || claim > 0 && req.TTL > 0
		if !longer && (req.Label == "" || req.Label == p.label) || p.broken != "" {
			return nil
		}
		if longer {
			var err error
			if l, err = s.pool.get(ctx, req.TTL, l.window()/10); err != nil {
				return err
			}
		}
		if req.Label != "" {
			p.label = req.Label
		}
		done, err := s.putAgain(ctx, e, &p, l)
		if done || err != nil {
			return err
		}
	}
}

// putAgain writes a record on a lease (nil: the one it hangs on), unless it was
// changed meanwhile: then the entry knows how.
func (s *store) putAgain(ctx context.Context, e *entry, p *place, l *lease) (done bool, err error) {
	on := clientv3.WithIgnoreLease()
	if l != nil {
		on = clientv3.WithLease(l.id)
	}
	answer, err := s.commit(ctx, txn{
		when:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(p.key), "=", p.modified)},
		then:   []clientv3.Op{clientv3.OpPut(p.key, p.value(), on)},
		orElse: []clientv3.Op{clientv3.OpGet(p.key)},
	})
	if err != nil {
		return false, err
	}
	b := &s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if answer.Succeeded {
		if p.modified = answer.Header.Revision; e.modified < p.modified {
			e.changed(p)
		}
		if l != nil {
			e.lease, e.claim = l, 0
		}
		return true, nil
	}
	if own := answer.Responses[0].GetResponseRange(); own.Count > 0 {
		if now, ok := readPlace(own.Kvs[0]); ok && !now.kept && now.created == e.created {
			e.changed(now)
			return false, nil
		}
	}
	b.forget(e)
	return true, nil // it is told by what we know of the entry
}

// confirm asks about those of which no watch tells, and begins one.
func (s *store) confirm(ctx context.Context, all []*asked) {
	var open []*asked
	var entries []*entry
	s.book.mu.Lock()
	for _, a := range all {
		known := a.e != nil && s.book.entries[a.e.owner] == a.e
		if a.e == nil || known && a.e.held && a.e.live() && a.req.TTL > 0 && s.ears.listens(longSilence) {
			continue
		}
		if known {
			s.book.watch(a.e)
		}
		open, entries = append(open, a), append(entries, a.e)
	}
	s.book.mu.Unlock()
	for k, res := range s.looks(ctx, entries) {
		if res.Err != nil {
			open[k].fail(res.Err)
		}
	}
}

func (b *book) leaseOf(e *entry) *lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return e.lease
}

// renewed is what is known of a grant.
func (b *book) renewed(e *entry) driver.RenewResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[e.owner] != e || !e.held || b.s.pool.isDead(e.lease) {
		return driver.RenewResult{Status: driver.Lost}
	}
	res := driver.RenewResult{Status: driver.Renewed, Window: e.window(), Sent: b.s.pool.sentOf(e.lease)}
	if e.broken != "" {
		res.Status, res.Reason = driver.Broken, e.broken
	}
	return res
}

// Beat keeps the leases of the places alive, and answers from what the watches
// told. It asks about those whose watches do not stand.
func (s *store) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	results := make([]driver.BeatResult, len(places))
	var ask []*entry
	var of []int
	for i := range places {
		e := s.book.entry(places[i].Owner)
		if e == nil {
			results[i].Status = driver.Gone
			continue
		}
		l := s.book.leaseOf(e)
		if err := s.pool.prove(ctx, l, l.window()/10); err != nil {
			results[i].Err = err
			continue
		}
		if res, ok := s.book.known(e); ok {
			results[i] = res
		} else {
			ask, of = append(ask, e), append(of, i)
		}
	}
	for k, res := range s.looks(ctx, ask) {
		results[of[k]] = res
	}
	return results
}

// known is what the watches told of a place, if they told all.
func (b *book) known(e *entry) (driver.BeatResult, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.entries[e.owner] != e:
		return driver.BeatResult{Status: driver.Gone}, true
	case !b.s.ears.listens(silence) || !e.live():
		return driver.BeatResult{}, false
	case e.held:
		return driver.BeatResult{Status: driver.Granted, Grant: b.grant(e)}, true
	}
	return driver.BeatResult{Status: driver.Waiting, Queue: e.queue()}, true
}

// Detach puts the record on a lease of its own, which nobody else keeps alive.
func (s *store) Detach(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
	a := &asked{req: &r}
	s.present(ctx, []*asked{a})
	e := a.e
	if e == nil {
		return a.res
	}
	l, err := s.pool.grant(ctx, seconds(r.TTL))
	if err != nil {
		return driver.RenewResult{Err: err}
	}
	for {
		s.book.mu.Lock()
		p := *e.place
		s.book.mu.Unlock()
		done, err := s.putAgain(ctx, e, &p, l)
		if err != nil {
			return driver.RenewResult{Err: err}
		}
		if done {
			break
		}
	}
	res := s.book.renewed(e)
	ref := r.Ref
	_, _ = s.book.remove(&ref)
	return res
}
