package zklock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

func (s *store) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, &driver.Failure{Kind: driver.Canceled, Err: err}
	}
	s.mu.Lock()
	if req.Abandon {
		s.tombs.add(req.Owner)
	}
	n := s.nodes[req.Owner]
	if n == nil {
		s.mu.Unlock()
		return s.releaseStray(ctx, req)
	}
	if req.Token != 0 && req.Token != n.token {
		s.mu.Unlock()
		return false, nil
	}
	n.held = n.held || n.state == held || n.state == broken
	n.state = gone // its end is no loss
	op := zk.Delete(n.path)
	if n.held && n.wanted && !n.permits { // see store.look
		op = zk.Multi(zk.SetData(n.path, nil, -1), op)
	}
	s.mu.Unlock()
	replies, err := n.in.zk.Do(ctx, op)
	if err != nil {
		return false, err
	}
	end := &replies[0]
	if end.Err == nil && op.IsMulti() {
		end.Err = end.Failed()
	}
	if end.Refused() {
		return false, refused("deleting a node", end.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := n.under; m != nil && n.held && n.alone && end.Err == nil {
		m.quiet, m.known = n.seq, true
	}
	s.forget(n)
	return end.Err == nil, nil
}

// releaseStray deletes what an owner has of whom nothing is known here: an
// attempt whose answer was lost, or one of another client.
func (s *store) releaseStray(ctx context.Context, req *driver.ReleaseRequest) (released bool, err error) {
	l, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	dir := s.dir(req.Name.Key)
	replies, err := l.zk.Do(ctx, zk.GetChildren(dir, false))
	if err != nil {
		return false, err
	}
	if !replies[0].NoNode() {
		v, err := listed(&replies[0])
		if err != nil {
			return false, err
		}
		for _, c := range v.children {
			if c.owner != req.Owner {
				continue
			}
			ok, err := s.deleteExact(ctx, l, dir+"/"+c.name, req.Token)
			if err != nil {
				return false, err
			}
			released = released || ok
		}
	}
	s.mu.Lock()
	delete(s.doubts, req.Owner)
	s.mu.Unlock()
	return released, nil
}

// deleteExact deletes a node that has the token, if one is named.
func (s *store) deleteExact(ctx context.Context, l *link, path string, token uint64) (bool, error) {
	if token != 0 {
		replies, err := l.zk.Do(ctx, zk.Exists(path, false))
		if err != nil {
			return false, err
		}
		stat, err := replies[0].Stat()
		if replies[0].Err != nil || err != nil || uint64(stat.Czxid) != token { //nolint:gosec // grows from 1
			return false, nil //nolint:nilerr // it is not there
		}
	}
	replies, err := l.zk.Do(ctx, zk.Delete(path))
	if err != nil {
		return false, err
	}
	if replies[0].Refused() {
		return false, refused("deleting a node", replies[0].Err)
	}
	return replies[0].Err == nil, nil
}

// Renew proves the session, once for all grants: a request that the servers log
// and that changes nothing. What has become of the grants, their watches have told
// by then.
func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	results := make([]driver.RenewResult, len(reqs))
	s.mu.Lock()
	l := s.link
	var nodes []*node
	for i := range reqs {
		if n := s.grantOf(&reqs[i].Ref, l); n != nil {
			nodes = append(nodes, n)
		}
	}
	s.mu.Unlock()
	var err error
	if len(nodes) > 0 {
		err = s.prove(ctx, l, nodes, reqs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range reqs {
		n := s.grantOf(&reqs[i].Ref, l)
		switch {
		case n == nil:
			results[i].Status = driver.Lost
		case err != nil:
			results[i].Err = err
		case n.state == broken:
			results[i] = driver.RenewResult{Status: driver.Broken, Reason: n.record.reason, Window: n.window(n.ttl), Sent: l.zk.Proof()}
		default:
			if reqs[i].TTL != 0 {
				n.ttl = reqs[i].TTL
			}
			results[i] = driver.RenewResult{Status: driver.Renewed, Window: n.window(n.ttl), Sent: l.zk.Proof()}
		}
	}
	return results
}

// grantOf is the exact grant, or nil if it is not ours any more; under mu.
func (s *store) grantOf(ref *driver.Ref, l *link) *node {
	n := s.nodes[ref.Owner]
	if n == nil || n.in != l || n.state != held && n.state != broken || ref.Token != 0 && ref.Token != n.token {
		return nil
	}
	return n
}

// prove sends the proof of life, and reads those grants that are not watched.
func (s *store) prove(ctx context.Context, l *link, nodes []*node, reqs []driver.RenewRequest) error {
	for i := range reqs {
		label := oneLine(reqs[i].Label)
		if label == "" {
			continue
		}
		s.mu.Lock()
		n := s.grantOf(&reqs[i].Ref, l)
		s.mu.Unlock()
		if n == nil {
			continue
		}
		if _, err := s.rewrite(ctx, n, func(r *record) bool { return r.label != label && set(&r.label, label) }); err != nil {
			return err
		}
	}
	return s.guard(ctx, l, nodes, zk.Delete(s.config.Path))
}

// guardYoung watches the holds that have lasted for a while.
func (s *store) guardYoung() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, holds := s.link, s.young
	s.young = nil
	if l != nil {
		s.spawn(func() { _ = s.guard(s.life, l, holds) }) // else the next renewal does
	}
}

// maxGuards is how many nodes are asked about in one packet.
const maxGuards = 256

// guard watches holds, so that their end and their break are told, and reads what
// happened to them before; those that are watched cost nothing. Other requests
// may travel before it.
func (s *store) guard(ctx context.Context, l *link, holds []*node, ops ...zk.Op) error {
	for len(holds) > maxGuards {
		if err := s.guard(ctx, l, holds[:maxGuards]); err != nil {
			return err
		}
		holds = holds[maxGuards:]
	}
	for {
		first := len(ops)
		var asked []*node
		var events []int
		s.mu.Lock()
		for _, n := range holds {
			if n.in == l && !n.guarded && (n.state == held || n.state == broken) {
				asked, events = append(asked, n), append(events, n.events)
				ops = append(ops, zk.GetData(n.path, true))
				l.watch(n, n.path)
			}
		}
		s.mu.Unlock()
		if len(ops) == 0 {
			return nil
		}
		replies, err := l.zk.Do(ctx, ops...)
		if err != nil {
			return err
		}
		var signals []driver.Signal
		s.mu.Lock()
		for i, n := range asked {
			signals = append(signals, s.seenOf(n, events[i], &replies[first+i])...)
		}
		s.mu.Unlock()
		s.tell(signals)
		ops = nil
	}
}

// seenOf notes what was read of a hold. It is guarded from now on, unless its
// watch has told something since; then the next round reads it again. Under mu.
func (s *store) seenOf(n *node, events int, reply *zk.Reply) []driver.Signal {
	if n.state == gone {
		return nil
	}
	if reply.Err != nil {
		return s.lost(n) // gone, or not ours to read
	}
	n.guarded = n.events == events
	return n.note(reply)
}

// note takes over what was read of a hold; under mu.
func (n *node) note(reply *zk.Reply) []driver.Signal {
	data, stat, err := reply.Data()
	if err != nil || stat.Version < n.version {
		return nil
	}
	n.version = stat.Version
	n.record = parseRecord(data)
	if !n.record.broken || n.state != held {
		return nil
	}
	n.state = broken
	return []driver.Signal{{Kind: driver.BrokenSignal, Owner: n.owner, Reason: n.record.reason}}
}

// lost ends a hold that somebody else has deleted; under mu.
func (s *store) lost(n *node) []driver.Signal {
	told := n.state == held || n.state == broken
	if n.state != gone {
		s.forget(n)
	}
	if !told {
		return nil
	}
	return []driver.Signal{{Kind: driver.LostSignal, Owner: n.owner}}
}

// tell delivers signals, but not from within a method.
func (s *store) tell(signals []driver.Signal) {
	if len(signals) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spawn(func() {
		for _, sig := range signals {
			s.deliver(sig)
		}
	})
}
