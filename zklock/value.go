package zklock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

// set is an assignment within a condition.
func set[T any](to *T, value T) bool {
	*to = value
	return true
}

// rewrite changes the record of a hold, unless change has nothing to change. It
// is false if the hold is not ours any more. A record that somebody else has
// written meanwhile is read first.
func (s *store) rewrite(ctx context.Context, n *node, change func(*record) bool) (held bool, err error) {
	for try := 0; ; try++ {
		s.mu.Lock()
		r, version, over := n.record, n.version, n.state == gone
		s.mu.Unlock()
		if over || !change(&r) {
			return !over, nil
		}
		replies, err := n.in.zk.Do(ctx, zk.SetData(n.path, r.bytes(), version), zk.GetData(n.path, false))
		if err != nil {
			return false, err
		}
		var signals []driver.Signal
		s.mu.Lock()
		if replies[1].Err == nil && n.state != gone {
			signals = n.note(&replies[1])
		} else if replies[1].NoNode() {
			signals = s.lost(n)
		}
		over = n.state == gone
		s.mu.Unlock()
		s.tell(signals)
		switch err := replies[0].Err; {
		case over:
			return false, nil
		case err != nil && (!errors.Is(err, zk.ErrBadVersion) || try == tries):
			return false, refused("writing a hold's record", err)
		case err == nil:
			return true, nil
		}
	}
}

func (s *store) SetValue(ctx context.Context, req *driver.ValueRequest) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, &driver.Failure{Kind: driver.Canceled, Err: err}
	}
	s.mu.Lock()
	n := s.grantOf(&req.Ref, s.link)
	s.mu.Unlock()
	if n == nil {
		return false, nil
	}
	return s.rewrite(ctx, n, func(r *record) bool {
		return r.seq < req.Seq && set(&r.seq, req.Seq) && set(&r.value, req.Value)
	})
}

func (s *store) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	if err := ctx.Err(); err != nil {
		return nil, &driver.Failure{Kind: driver.Canceled, Err: err}
	}
	l, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	dir := s.dir(n.Key)
	for ctx.Err() == nil {
		replies, err := l.zk.Do(ctx, zk.Sync(dir), zk.GetChildren(dir, false))
		if err != nil {
			return nil, err
		}
		if replies[1].NoNode() {
			return nil, nil
		}
		v, err := listed(&replies[1])
		if err != nil || len(v.children) == 0 || v.children[0].mode != driver.Exclusive {
			return nil, err
		}
		c := &v.children[0]
		if replies, err = l.zk.Do(ctx, zk.GetData(dir+"/"+c.name, false)); err != nil {
			return nil, err
		}
		if replies[0].NoNode() {
			continue // its successor leads now
		}
		if replies[0].Err != nil {
			return nil, refused("reading the leader", replies[0].Err)
		}
		data, stat, err := replies[0].Data()
		if err != nil {
			return nil, err
		}
		h := c.described(data, stat)
		return &h, nil
	}
	return nil, ctx.Err()
}

// errMissed ends watches whose session or connection is gone.
var errMissed = &driver.Failure{Kind: driver.Unavailable, Err: errors.New("zookeeper: changes may have been missed")}

// lookout watches who leads a name, for all who want to know. All is under
// store.mu.
type lookout struct {
	dir   string
	path  string        // what is watched
	bell  chan struct{} // rung by the watch; one entry
	armed bool          // every later change will be seen
	calls map[*lookoutCall]bool
	over  chan struct{} // closed when nobody wants to know, or on err
	err   error
}

type lookoutCall struct{ changed chan struct{} }

func (c *lookoutCall) ring() { ring(c.changed) }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

func (lo *lookout) seen(*store, zk.Event) (signals []driver.Signal, keep bool) {
	lo.armed = false
	ring(lo.bell)
	return nil, false
}

func (s *store) Watch(ctx context.Context, n driver.Name, changed func()) error {
	l, err := s.session(ctx)
	if err != nil {
		return err
	}
	call := &lookoutCall{make(chan struct{}, 1)}
	s.mu.Lock()
	if s.link != l || s.closed {
		s.mu.Unlock()
		return errMissed
	}
	lo := l.lookouts[n.Key]
	if lo == nil {
		lo = &lookout{dir: s.dir(n.Key), bell: make(chan struct{}, 1), calls: map[*lookoutCall]bool{}, over: make(chan struct{})}
		l.lookouts[n.Key] = lo
		s.spawn(func() { s.lookOut(l, lo) })
	}
	if lo.calls[call] = true; lo.armed {
		call.ring()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(lo.calls, call); len(lo.calls) == 0 {
			l.endLookout(n.Key, lo, errMissed)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lo.over:
			return lo.err
		case <-call.changed:
			changed()
		}
	}
}

// lookOut sets the watch anew after each change, and then tells of it.
func (s *store) lookOut(l *link, lo *lookout) {
	for {
		ctx, cancel := context.WithTimeout(s.life, settle)
		err := s.arm(ctx, l, lo)
		cancel()
		s.mu.Lock()
		if err != nil {
			for key, other := range l.lookouts {
				if other == lo {
					l.endLookout(key, lo, err)
				}
			}
		}
		for call := range lo.calls {
			call.ring()
		}
		s.mu.Unlock()
		select {
		case <-lo.bell:
		case <-lo.over:
			return
		case <-s.life.Done():
			return
		}
	}
}

// target is what a lookout watches: the leader's node; the list of those who may
// become it; or the name's node, which may be made.
type target struct {
	path string
	kind targetKind
}

type targetKind uint8

const (
	absent targetKind = iota
	list
	leader
)

func (t target) op() zk.Op {
	switch t.kind {
	case list:
		return zk.GetChildren(t.path, true)
	case leader:
		return zk.GetData(t.path, true)
	case absent:
	}
	return zk.Exists(t.path, true)
}

// arm sets a watch, and looks in the same exchange whether it is the right one.
func (s *store) arm(ctx context.Context, l *link, lo *lookout) error {
	for t := (target{lo.dir, list}); ; {
		s.mu.Lock()
		if lo.err != nil { // nobody wants to know any more
			s.mu.Unlock()
			return lo.err
		}
		l.unwatch(lo, lo.path)
		lo.path, lo.armed = t.path, true
		l.watch(lo, t.path)
		s.mu.Unlock()
		replies, err := l.zk.Do(ctx, t.op(), zk.GetChildren(lo.dir, false))
		if err != nil {
			return err
		}
		if replies[0].Refused() {
			return refused("watching", replies[0].Err)
		}
		now := target{lo.dir, absent}
		if !replies[1].NoNode() {
			v, err := listed(&replies[1])
			if err != nil {
				return err
			}
			now.kind = list
			if len(v.children) > 0 && v.children[0].mode == driver.Exclusive {
				now = target{lo.dir + "/" + v.children[0].name, leader}
			}
		}
		if now == t && (replies[0].Err == nil) == (t.kind != absent) {
			return nil
		}
		t = now
	}
}

// endLookouts ends all watches of a session; under mu.
func (l *link) endLookouts(err error) {
	for key, lo := range l.lookouts {
		l.endLookout(key, lo, err)
	}
}

func (l *link) endLookout(key string, lo *lookout, err error) {
	if l.lookouts[key] != lo {
		return
	}
	delete(l.lookouts, key)
	l.unwatch(lo, lo.path)
	lo.err = err
	close(lo.over)
}
