package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

var errGone = &driver.Failure{Kind: driver.Unavailable, Err: errors.New("zookeeper: the node was deleted by somebody else")}

// A place watches the last of those that it waits for, both its data and its end.
// Only a holder's data is ever written. So if that changed before the end, the
// other was a holder; was it exclusive, nobody else was before it, and its end
// grants the place with no further exchange. A holder who knows that he is waited
// for writes and ends in one step. After any other end the place looks at the list;
// and only then, as those before it only get fewer.
//
// Who waits for permits waits for their number, not for somebody's end. The first
// of them watches the list; each other one the data of the one before, who writes
// into it when he gets in.

// look finds out where a place stands, beginning with a list that is at hand, and
// leaves it granted, asleep with its watches set, or gone. The caller has set
// n.looking.
func (s *store) look(ctx context.Context, n *node, v *view) error {
	for {
		var err error
		if v == nil {
			v, err = s.list(ctx, n)
		}
		done := false
		if err == nil {
			done, err = s.lookOnce(ctx, n, v)
		}
		v = nil
		s.mu.Lock()
		switch {
		case err != nil && (!n.again || ctx.Err() != nil), done && !n.again, n.state != waiting:
			n.looking, n.again, n.asleep = false, false, done
			s.mu.Unlock()
			return err
		}
		n.again = false
		s.mu.Unlock()
	}
}

func (s *store) list(ctx context.Context, n *node) (*view, error) {
	replies, err := n.in.zk.Do(ctx, zk.GetChildren(n.dir, false))
	if err != nil {
		return nil, err
	}
	if replies[0].NoNode() {
		return &view{}, nil
	}
	v, err := listed(&replies[0])
	return &v, err
}

// lookOnce is done when the place waits for nothing, or what it watches is there.
func (s *store) lookOnce(ctx context.Context, n *node, v *view) (done bool, err error) {
	i := v.find(n.name)
	if i < 0 {
		s.mu.Lock()
		s.forget(n)
		s.mu.Unlock()
		return true, nil
	}
	q := v.queue(i)
	if q.ahead == 0 {
		s.mu.Lock()
		if n.state == waiting {
			s.admit(n)
			if n.permits {
				s.spawn(func() { s.mark(n) })
			}
		}
		s.mu.Unlock()
		return true, nil
	}
	list := n.permits && v.holds(i-1)
	on := n.dir + "/" + q.last.name
	var ops []zk.Op
	switch {
	case list:
		on = n.dir
		ops = append(ops, zk.GetChildren(on, true))
	case n.permits:
		on = n.dir + "/" + v.children[i-1].name
		ops = append(ops, zk.GetData(on, true))
	default:
		ops = append(ops, zk.GetChildren(on, true), zk.GetData(on, true)) // it has no children: their watch tells of its end
	}
	s.mu.Lock()
	if n.state != waiting { // meanwhile
		s.mu.Unlock()
		return true, nil
	}
	s.await(n, on)
	n.front, n.ahead, n.wanted = q.ahead == 1 && !n.permits, max(0, i-v.holders()), true
	n.after = q.last.mode
	s.mu.Unlock()
	replies, err := n.in.zk.Do(ctx, ops...)
	if err != nil {
		return false, err
	}
	for i := range replies {
		if replies[i].Refused() {
			return false, refused("watching", replies[i].Err)
		}
		done = replies[i].Err == nil && (i == 0 || done)
	}
	if list && done { // something may have happened before the watch was set
		fresh, err := listed(&replies[0])
		if err != nil {
			return false, err
		}
		i = fresh.find(n.name)
		done = i > 0 && !fresh.holds(i) && fresh.holds(i-1)
	}
	return done, nil
}

// await sets what a place is told of; under mu.
func (s *store) await(n *node, on string) {
	if n.on != "" {
		n.in.unwatch(n, n.on)
	}
	if n.on = on; on != "" {
		n.in.watch(n, on)
	}
}

// watch notes who is told of what a path's watch sees next; under mu.
func (l *link) watch(w watcher, path string) {
	set := l.watches[path]
	if set == nil {
		set = map[watcher]bool{}
		l.watches[path] = set
	}
	set[w] = true
}

func (l *link) unwatch(w watcher, path string) {
	set := l.watches[path]
	if delete(set, w); len(set) == 0 {
		delete(l.watches, path)
	}
}

// forget ends what we know of a node; under mu.
func (s *store) forget(n *node) {
	n.state = gone
	s.await(n, "")
	n.in.unwatch(n, n.path)
	if s.nodes[n.owner] == n {
		delete(s.nodes, n.owner)
	}
}

// admit makes a place a hold; under mu.
func (s *store) admit(n *node) {
	s.await(n, "")
	n.state = held
	if len(s.young) == 0 {
		s.ripe.Reset(youth)
	}
	s.young = append(s.young, n)
}

// event is told what a watch saw. It is called by the session's reader, so that
// what it notes is known before any later answer.
func (s *store) event(l *link, e zk.Event) {
	var signals []driver.Signal
	s.mu.Lock()
	set := l.watches[e.Path]
	delete(l.watches, e.Path)
	for w := range set {
		more, keep := w.seen(s, e)
		if signals = append(signals, more...); keep {
			l.watch(w, e.Path)
		}
	}
	s.mu.Unlock()
	for _, sig := range signals {
		s.deliver(sig)
	}
}

// watcher is who set a watch: a hold on its own node, a place on those before it,
// a lookout.
type watcher interface {
	// seen is under mu. keep says that another event may come to it, of a watch that
	// it has still set.
	seen(s *store, e zk.Event) (signals []driver.Signal, keep bool)
}

func (n *node) seen(s *store, e zk.Event) (signals []driver.Signal, keep bool) {
	switch {
	case n.path == e.Path && !e.Gone:
		n.guarded = false
		n.events++
		s.spawn(func() { _ = s.guard(s.life, n.in, []*node{n}) })
	case n.path == e.Path:
		return s.lost(n), false
	case n.state != waiting || n.on != e.Path:
	case !e.Gone && !n.permits: // it was a holder
		n.front = n.front || n.after == driver.Exclusive
		return nil, true
	case n.looking:
		n.again = true
	case e.Gone && n.front:
		s.admit(n)
		return []driver.Signal{{Kind: driver.GrantSignal, Owner: n.owner, Grant: n.grant()}}, false
	default:
		s.relook(n, nil)
	}
	return nil, false
}

// relook has a place look where it stands, beginning with a list that is at hand
// (or nil), in the background; under mu.
func (s *store) relook(n *node, v *view) {
	if n.looking {
		n.again = true
		return
	}
	n.looking, n.asleep = true, false
	s.spawn(func() {
		_ = s.look(s.life, n, v) // the next heartbeat or connection looks again
		s.mu.Lock()
		told := n.state == held
		g := driver.Grant{}
		if told {
			g = n.grant()
		}
		s.mu.Unlock()
		if told {
			s.deliver(driver.Signal{Kind: driver.GrantSignal, Owner: n.owner, Grant: g})
		}
	})
}

// mark tells whoever watches us that we are in.
func (s *store) mark(n *node) {
	ctx, cancel := context.WithTimeout(s.life, settle)
	defer cancel()
	_, _ = s.rewrite(ctx, n, func(r *record) bool { return !r.in && set(&r.in, true) }) // else it is on its way out
}

// resumed looks after everything in a session whose watches are gone.
func (s *store) resumed(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(l.watches)
	clear(l.names)
	l.endLookouts(errMissed)
	var holds []*node
	for _, n := range s.nodes {
		switch {
		case n.in != l:
		case n.state == waiting:
			s.relook(n, nil)
		case n.state != gone:
			n.guarded = false
			n.events++
			holds = append(holds, n)
		}
	}
	if len(holds) > 0 {
		s.spawn(func() { _ = s.guard(s.life, l, holds) })
	}
}

// Beat asks whether the places' nodes are there; what they wait for tells itself.
func (s *store) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	results := make([]driver.BeatResult, len(places))
	nodes := make([]*node, len(places))
	var ops []zk.Op
	s.mu.Lock()
	l := s.link
	for i := range places {
		n := s.nodes[places[i].Owner]
		if n == nil || n.state == gone || n.in != l {
			results[i].Status = driver.Gone
			continue
		}
		nodes[i] = n
		ops = append(ops, zk.Exists(n.path, false))
	}
	s.mu.Unlock()
	if len(ops) == 0 {
		return results
	}
	replies, err := l.zk.Do(ctx, ops...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range nodes {
		switch {
		case n == nil:
			continue
		case err != nil:
			results[i].Err = err
			continue
		}
		reply := replies[0]
		replies = replies[1:]
		results[i] = s.beaten(n, &reply)
	}
	return results
}

// beaten answers for one place; under mu.
func (s *store) beaten(n *node, reply *zk.Reply) (res driver.BeatResult) {
	if reply.Refused() {
		return driver.BeatResult{Err: refused("asking for a place", reply.Err)}
	}
	if reply.Err != nil && n.state != gone {
		s.forget(n)
	}
	if n.state == gone {
		return driver.BeatResult{Status: driver.Gone}
	}
	if n.state == waiting && !n.asleep {
		s.relook(n, nil)
	}
	now := s.standing(n)
	return driver.BeatResult{Status: now.Status, Grant: now.Grant, Queue: now.Queue}
}

// youth is how long a hold lives unwatched: most are over sooner.
const youth = 150 * time.Millisecond
