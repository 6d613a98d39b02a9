package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

// state is what has become of a node.
type state uint8

const (
	waiting state = iota
	held
	broken // held, but a person has revoked it
	gone   // deleted, or on its way to be
)

// node is a hold or place of ours: one ephemeral node. All but the first fields
// are under store.mu.
type node struct {
	in      *link
	owner   driver.Owner
	key     string // of the name
	dir     string // the name's node
	name    string // of this one
	path    string
	seq     int32
	token   uint64
	ttl     time.Duration
	permits bool // see store.mark
	under   *name

	state   state
	record  record
	version int32 // of the data, as last seen
	// A place: see store.look.
	looking, again bool
	asleep         bool // its watches are set
	on             string
	after          driver.Mode // of the one that it watches
	front          bool        // what it waits for is the only one before it that counts
	wanted         bool        // others are, or were, there
	held, alone    bool        // it was a hold; an exclusive one
	ahead          int
	holder         *driver.Holder
	// A hold: see store.guard.
	guarded bool
	events  int
}

func (s *store) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := ctx.Err(); err != nil {
		return driver.AcquireResult{}, &driver.Failure{Kind: driver.Canceled, Err: err}
	}
	s.mu.Lock()
	n, doubt, dead := s.nodes[req.Owner], s.doubts[req.Owner], s.tombs.has(req.Owner)
	if n != nil && n.state != gone {
		defer s.mu.Unlock()
		return s.standing(n), nil
	}
	s.mu.Unlock()
	if dead {
		return driver.AcquireResult{Status: driver.Gone}, nil
	}
	n = nil
	l, err := s.session(ctx)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	var v view
	if doubt {
		n, v, err = s.adopt(ctx, l, req)
	}
	if n == nil && err == nil {
		n, v, err = s.create(ctx, l, req)
	}
	if err == nil {
		return s.settle(ctx, n, v, req)
	}
	return driver.AcquireResult{}, s.doubt(req.Owner, err)
}

// doubt notes that an attempt may have left a node. Of one that was abandoned it
// is known: it will be abandoned again.
func (s *store) doubt(owner driver.Owner, err error) error {
	if err != nil && driver.KindOf(err) == driver.Indeterminate {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.tombs.has(owner) {
			s.doubts[owner] = true
		}
	}
	return err
}

// standing answers a repeated attempt; under mu.
func (s *store) standing(n *node) driver.AcquireResult {
	if n.state == waiting {
		return driver.AcquireResult{Status: driver.Waiting, Queue: driver.Queue{Ahead: n.ahead, Holder: n.holder}}
	}
	return driver.AcquireResult{Status: driver.Granted, Grant: n.grant()}
}

// grant is what the holder may trust in: the session.
func (n *node) grant() driver.Grant {
	return driver.Grant{Token: n.token, Window: n.window(n.ttl), Sent: n.in.zk.Proof()}
}

func (n *node) window(ttl time.Duration) time.Duration { return min(ttl, trustIn(n.in.zk.Timeout())) }

func (s *store) dir(key string) string { return s.root + "/" + key }

// tries is how often a request is made anew that was refused because the name's
// node, or the root, was not there.
const tries = 5

// name is what a session knows of a name whose node it watches.
type name struct {
	in  *link
	key string
	// quiet, if known, is a number up to which no child exists any more: who is
	// made with the next one is alone, without a look. It was that of an exclusive
	// holder of ours; children only get fewer, numbers only grow.
	quiet int32
	known bool
	// busy: others came in between last time, so a look goes with the create.
	busy bool
}

// seen forgets the name when its node has gone, or when it was written and so is
// not watched any more.
func (m *name) seen(_ *store, e zk.Event) (signals []driver.Signal, keep bool) {
	if e.Children { // of another's watch
		return nil, true
	}
	if m.in.names[m.key] == m {
		delete(m.in.names, m.key)
	}
	return nil, false
}

// create makes the node, and finds out who is there beside it: in the same
// exchange, unless it will probably be alone. For a name that was not met lately
// the exchange also makes the name's node, looks whether it is one of ours, and
// watches it: numbers begin anew in another one of that name.
func (s *store) create(ctx context.Context, l *link, req *driver.AcquireRequest) (*node, view, error) {
	dir := s.dir(req.Name.Key)
	r := record{label: req.Label}
	for try := 0; ; try++ {
		s.mu.Lock()
		known := l.names[req.Name.Key]
		var before name
		if known != nil {
			before = *known
		}
		s.mu.Unlock()
		ops, first := make([]zk.Op, 0, 4), 0
		if known == nil {
			first = 1
			known = s.meet(l, req.Name.Key)
			ops = append(ops, zk.CreateContainer(dir, named(&req.Name), s.acl))
		}
		ops = append(ops, zk.Create(dir+"/"+childPrefix(req), r.bytes(), s.acl, zk.EphemeralSequential))
		switch {
		case first == 1:
			ops = append(ops, zk.GetChildren(dir, false), zk.GetData(dir, true))
		case before.busy || !before.known:
			ops = append(ops, zk.GetChildren(dir, false))
		}
		replies, err := l.zk.Do(ctx, ops...)
		if err != nil {
			if first == 1 {
				s.forgetName(l, known)
			}
			return nil, view{}, err
		}
		made := replies[first:]
		if first == 1 && replies[0].Refused() && !errors.Is(replies[0].Err, zk.ErrNodeExists) && made[0].Err != nil {
			s.forgetName(l, known)
			return nil, view{}, refused("making the node of "+req.Name.Key, replies[0].Err)
		}
		if made[0].NoNode() && try < tries {
			s.forgetName(l, known)
			if first == 1 { // there is not even a root
				err = s.makeRoot(ctx, l)
			}
			if err != nil {
				return nil, view{}, err
			}
			continue
		}
		n, err := s.created(l, req, r, &made[0])
		if err == nil && first == 1 {
			err = s.ours(ctx, n, &made[2], req)
		}
		if err != nil {
			if first == 1 { // it may not be watched
				s.forgetName(l, known)
			}
			return nil, view{}, err
		}
		n.under = known
		v, err := s.beside(ctx, n, known, made[1:])
		return n, v, left(err)
	}
}

// beside is who is there beside a new node.
func (s *store) beside(ctx context.Context, n *node, known *name, list []zk.Reply) (view, error) {
	s.mu.Lock()
	alone := known.known && n.in.names[n.key] == known && n.seq == known.quiet+1
	known.busy = known.busy && !alone
	s.mu.Unlock()
	if alone {
		return newView([]string{n.name}), nil
	}
	if len(list) == 0 {
		var err error
		if list, err = n.in.zk.Do(ctx, zk.GetChildren(n.dir, false)); err != nil {
			return view{}, err
		}
	}
	v, err := listed(&list[0])
	s.mu.Lock()
	known.busy = len(v.children) > 1 || known.known
	s.mu.Unlock()
	return v, err
}

// meet notes a name whose node is about to be watched.
func (s *store) meet(l *link, key string) *name {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.names) >= maxNames {
		for _, m := range l.names {
			l.unwatch(m, s.dir(m.key))
		}
		clear(l.names)
	}
	m := &name{in: l, key: key}
	l.names[key] = m
	l.watch(m, s.dir(key))
	return m
}

func (s *store) forgetName(l *link, m *name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.names[m.key] == m {
		delete(l.names, m.key)
	}
	l.unwatch(m, s.dir(m.key))
}

// created reads the answer to a create.
func (s *store) created(l *link, req *driver.AcquireRequest, r record, made *zk.Reply) (*node, error) {
	if made.Err != nil {
		return nil, refused("making a node for "+req.Name.Key, made.Err)
	}
	path, stat, err := made.Created()
	if err != nil {
		return nil, left(err)
	}
	n := s.newNode(l, req, path, stat)
	n.record = r
	return n, nil
}

func listed(reply *zk.Reply) (view, error) {
	if reply.Err != nil {
		return view{}, refused("listing", reply.Err)
	}
	names, err := reply.Children()
	return newView(names), err
}

func (s *store) newNode(l *link, req *driver.AcquireRequest, path string, stat zk.Stat) *node {
	dir := s.dir(req.Name.Key)
	c, _ := parseChild(path[min(len(dir)+1, len(path)):])
	return &node{
		seq: c.seq, in: l, owner: req.Owner, key: req.Name.Key, dir: dir, path: path, name: path[min(len(dir)+1, len(path)):],
		token: uint64(stat.Czxid), ttl: req.TTL, permits: req.Mode == driver.Permits, alone: req.Mode == driver.Exclusive, version: stat.Version, //nolint:gosec // grows from 1
	}
}

// ours takes the attempt back if a name's node is not one of ours.
func (s *store) ours(ctx context.Context, n *node, data *zk.Reply, req *driver.AcquireRequest) error {
	text, _, err := data.Data()
	if data.Err != nil {
		err = refused("reading the node of "+req.Name.Key, data.Err)
	}
	if prefix, full, ok := parseNamed(text); err == nil && (!ok || prefix != req.Name.Prefix || full != req.Name.Full) {
		err = errOtherRecord
	}
	if err == nil {
		return nil
	}
	return s.withdraw(ctx, n, err)
}

// makeRoot makes the nodes above the names', which stay.
func (s *store) makeRoot(ctx context.Context, l *link) error {
	var ops []zk.Op
	for i, c := range s.root {
		if c == '/' && i > 0 {
			ops = append(ops, zk.Create(s.root[:i], nil, s.acl, zk.Persistent))
		}
	}
	if s.root != "" {
		ops = append(ops, zk.Create(s.root, nil, s.acl, zk.Persistent))
	}
	replies, err := l.zk.Do(ctx, ops...)
	for _, reply := range replies {
		if err == nil && reply.Err != nil && !errors.Is(reply.Err, zk.ErrNodeExists) {
			err = refused("making "+s.root, reply.Err)
		}
	}
	return err
}

// adopt finds the node that an earlier attempt of the owner made, whose answer
// was lost. One of a former session is deleted: its end is near.
func (s *store) adopt(ctx context.Context, l *link, req *driver.AcquireRequest) (*node, view, error) {
	dir := s.dir(req.Name.Key)
	replies, err := l.zk.Do(ctx, zk.GetChildren(dir, false))
	if err != nil {
		return nil, view{}, left(err)
	}
	if replies[0].NoNode() {
		return nil, view{}, nil
	}
	v, err := listed(&replies[0])
	if err != nil {
		return nil, view{}, left(err)
	}
	for _, c := range v.children {
		if c.owner != req.Owner {
			continue
		}
		replies, err := l.zk.Do(ctx, zk.Exists(dir+"/"+c.name, false))
		switch {
		case err != nil:
			return nil, view{}, left(err)
		case replies[0].NoNode(): // it went meanwhile
			continue
		case replies[0].Err != nil:
			return nil, view{}, left(refused("looking for a former attempt", replies[0].Err))
		}
		stat, err := replies[0].Stat()
		if err != nil {
			return nil, view{}, left(err)
		}
		n := s.newNode(l, req, dir+"/"+c.name, stat)
		n.record.label = req.Label
		if stat.EphemeralOwner == l.zk.ID() {
			return n, v, nil
		}
		if err := s.withdraw(ctx, n, nil); err != nil {
			return nil, view{}, err
		}
	}
	return nil, view{}, nil
}

// settle finds out what the attempt came to.
func (s *store) settle(ctx context.Context, n *node, v view, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	i := v.find(n.name)
	if i < 0 { // somebody has deleted it
		return driver.AcquireResult{}, s.doubt(n.owner, left(errGone))
	}
	if err := v.conflict(i); err != nil {
		return driver.AcquireResult{}, s.doubt(n.owner, s.withdraw(ctx, n, err))
	}
	q := v.queue(i)
	res := driver.AcquireResult{Queue: driver.Queue{Ahead: i - v.holders(), Holder: v.children[0].holder()}}
	switch {
	case q.ahead == 0:
		n.wanted = len(v.children) > 1
	case !req.Queue:
		res.Status = driver.Held
		return res, s.doubt(n.owner, s.withdraw(ctx, n, nil))
	}
	n.holder, n.ahead = res.Queue.Holder, res.Queue.Ahead
	return s.enter(ctx, n, &v, q.ahead == 0)
}

// enter notes a new hold or place, unless its owner was abandoned while it was on
// its way, or its session has ended.
func (s *store) enter(ctx context.Context, n *node, v *view, granted bool) (driver.AcquireResult, error) {
	s.mu.Lock()
	dead, over := s.tombs.has(n.owner), n.in.over
	if !dead && !over {
		defer s.mu.Unlock()
		s.nodes[n.owner] = n
		delete(s.doubts, n.owner)
		if granted {
			s.admit(n)
		} else {
			s.relook(n, v) // its watches
		}
		return s.standing(n), nil
	}
	s.mu.Unlock()
	if dead {
		return driver.AcquireResult{Status: driver.Gone}, s.doubt(n.owner, s.withdraw(ctx, n, nil))
	}
	return driver.AcquireResult{}, s.doubt(n.owner, left(zk.ErrOver))
}

// withdraw deletes the node of an attempt that is to fail with why, or to be
// answered Held.
func (s *store) withdraw(ctx context.Context, n *node, why error) error {
	replies, err := n.in.zk.Do(ctx, zk.Delete(n.path))
	if err == nil && replies[0].Refused() {
		err = replies[0].Err
	}
	if err != nil {
		return left(err)
	}
	return why
}

// holder is what a name tells of who made it.
func (c *child) holder() *driver.Holder {
	return &driver.Holder{Owner: c.owner, Mode: c.mode, Permits: c.n}
}
