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
	token   uint64
	ttl     time.Duration
	permits bool // see store.mark

	state   state
	record  record
	version int32 // of the data, as last seen
	// A place: see store.look.
	looking, again bool
	asleep         bool // its watches are set
	on             []string
	front          bool // it waits for the first of those only
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

// doubt notes that an attempt may have left a node.
func (s *store) doubt(owner driver.Owner, err error) error {
	if err != nil && driver.KindOf(err) == driver.Indeterminate {
		s.mu.Lock()
		s.doubts[owner] = true
		s.mu.Unlock()
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

// create makes the node, and lists its siblings in the same exchange. Only for a
// name that was not met lately it also makes the name's node.
func (s *store) create(ctx context.Context, l *link, req *driver.AcquireRequest) (*node, view, error) {
	dir := s.dir(req.Name.Key)
	r := record{label: req.Label}
	enter := []zk.Op{
		zk.Create(dir+"/"+childPrefix(req), r.bytes(), s.acl, zk.EphemeralSequential),
		zk.GetChildren(dir, false),
	}
	for try := 0; ; try++ {
		s.mu.Lock()
		known := s.seen[req.Name.Key]
		s.mu.Unlock()
		ops, first := enter, 0
		if !known {
			ops, first = []zk.Op{zk.CreateContainer(dir, named(&req.Name), s.acl), enter[0], enter[1], zk.GetData(dir, false)}, 1
		}
		replies, err := l.zk.Do(ctx, ops...)
		if err != nil {
			return nil, view{}, err
		}
		made := replies[first:]
		if made[0].NoNode() && try < tries {
			s.unsee(req.Name.Key)
			if !known { // there is not even a root
				err = s.makeRoot(ctx, l)
			}
			if err != nil {
				return nil, view{}, err
			}
			continue
		}
		n, v, err := s.created(l, req, r, made)
		if err == nil && !known {
			err = s.known(ctx, n, &made[2], req)
		}
		return n, v, err
	}
}

// created reads the answers to a create and a list.
func (s *store) created(l *link, req *driver.AcquireRequest, r record, made []zk.Reply) (*node, view, error) {
	if made[0].Err != nil {
		return nil, view{}, refused("making a node for "+req.Name.Key, made[0].Err)
	}
	path, stat, err := made[0].Created()
	if err != nil {
		return nil, view{}, left(err)
	}
	n := s.newNode(l, req, path, stat)
	n.record = r
	v, err := listed(&made[1])
	return n, v, left(err)
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
	return &node{
		in: l, owner: req.Owner, key: req.Name.Key, dir: dir, path: path, name: path[min(len(dir)+1, len(path)):],
		token: uint64(stat.Czxid), ttl: req.TTL, permits: req.Mode == driver.Permits, version: stat.Version, //nolint:gosec // grows from 1
	}
}

// known notes that a name's node is ours, or takes the attempt back.
func (s *store) known(ctx context.Context, n *node, data *zk.Reply, req *driver.AcquireRequest) error {
	text, _, err := data.Data()
	if data.Err != nil {
		err = refused("reading the node of "+req.Name.Key, data.Err)
	}
	if prefix, full, ok := parseNamed(text); err == nil && (!ok || prefix != req.Name.Prefix || full != req.Name.Full) {
		err = errOtherRecord
	}
	if err != nil {
		return s.withdraw(ctx, n, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= maxSeen {
		clear(s.seen)
	}
	s.seen[req.Name.Key] = true
	return nil
}

func (s *store) unsee(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, key)
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
		if err != nil || replies[0].Err != nil {
			return nil, view{}, left(err)
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
	s.mu.Lock()
	dead := s.tombs.has(n.owner)
	s.mu.Unlock()
	if dead { // while it was on its way
		return driver.AcquireResult{Status: driver.Gone}, s.doubt(n.owner, s.withdraw(ctx, n, nil))
	}
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
		return s.granted(n), nil
	case !req.Queue:
		res.Status = driver.Held
		return res, s.doubt(n.owner, s.withdraw(ctx, n, nil))
	}
	s.mu.Lock()
	s.nodes[n.owner] = n
	n.looking, n.holder = true, res.Queue.Holder
	s.mu.Unlock()
	if err := s.look(ctx, n, &v); err != nil {
		return driver.AcquireResult{}, s.doubt(n.owner, left(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.state == gone {
		return driver.AcquireResult{Status: driver.Gone}, nil
	}
	return s.standing(n), nil
}

func (s *store) granted(n *node) driver.AcquireResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n.owner] = n
	s.admit(n)
	return driver.AcquireResult{Status: driver.Granted, Grant: n.grant()}
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
