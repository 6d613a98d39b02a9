package zklock

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

func (s *store) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	l, err := s.session(ctx)
	if err != nil {
		return driver.Record{}, err
	}
	now, err := s.serverTime(ctx, l)
	if err != nil {
		return driver.Record{}, err
	}
	r, _, err := s.read(ctx, l, n.Key, now)
	r.Name = n.Full
	return r, err
}

// serverTime is the servers' clock, in ms: when a node was made that nobody ever
// sees. 0 if we may not make one.
func (s *store) serverTime(ctx context.Context, l *link) (int64, error) {
	path := s.config.Path
	replies, err := l.zk.Do(ctx, zk.Multi(zk.Create(path, nil, s.acl, zk.Ephemeral), zk.Delete(path)))
	if err != nil {
		return 0, err
	}
	stat, err := replies[0].FirstCreated()
	if err != nil {
		return 0, nil //nolint:nilerr // ages are not told then
	}
	return stat.Ctime, nil
}

// read reads a name's nodes.
func (s *store) read(ctx context.Context, l *link, key string, now int64) (r driver.Record, prefix string, err error) {
	dir := s.dir(key)
	replies, err := l.zk.Do(ctx, zk.GetData(dir, false), zk.GetChildren(dir, false))
	if err != nil || replies[0].NoNode() {
		return r, "", err
	}
	if replies[0].Err != nil {
		return r, "", refused("reading the node of "+key, replies[0].Err)
	}
	data, _, err := replies[0].Data()
	if err != nil {
		return r, "", err
	}
	prefix, full, ok := parseNamed(data)
	if !ok {
		return r, "", errOtherRecord
	}
	v, err := listed(&replies[1])
	if err != nil || len(v.children) == 0 {
		return r, prefix, err
	}
	r.Name, r.Limit, r.Mode = full, v.children[0].limit, v.children[0].mode
	err = s.readChildren(ctx, l, dir, &v, &r, now)
	return r, prefix, err
}

// readChildren reads who holds and who waits, those who are still there.
func (s *store) readChildren(ctx context.Context, l *link, dir string, v *view, r *driver.Record, now int64) error {
	holders := v.holders()
	for at := 0; at < len(v.children); at += maxGuards {
		part := v.children[at:min(at+maxGuards, len(v.children))]
		ops := make([]zk.Op, len(part))
		for i := range part {
			ops[i] = zk.GetData(dir+"/"+part[i].name, false)
		}
		replies, err := l.zk.Do(ctx, ops...)
		if err != nil {
			return err
		}
		for i := range part {
			data, stat, err := replies[i].Data()
			if replies[i].Err != nil || err != nil {
				continue // it has left
			}
			h := part[i].described(data, stat)
			if h.Held = age(now, stat.Ctime); at+i < holders {
				r.Holders = append(r.Holders, h)
			} else {
				r.Waiters = append(r.Waiters, driver.Waiter{Owner: h.Owner, Label: h.Label, Mode: h.Mode, Permits: h.Permits, Waited: h.Held})
			}
		}
	}
	return nil
}

// described is all that a node tells of who made it.
func (c *child) described(data []byte, stat zk.Stat) driver.Holder {
	r := parseRecord(data)
	h := *c.holder()
	h.Label, h.Token, h.Broken, h.Value, h.Seq = r.label, uint64(stat.Czxid), r.reason, r.value, r.seq //nolint:gosec // grows from 1
	return h
}

func age(now, then int64) time.Duration {
	if now == 0 {
		return 0
	}
	return max(0, time.Duration(now-then)*time.Millisecond)
}

// List reads the names of the prefix one after the other.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		keys, l, now, err := s.keys(ctx)
		for _, key := range keys {
			if !mayBe(key, prefix) {
				continue
			}
			r, of, rerr := s.read(ctx, l, key, now)
			switch {
			case driver.KindOf(rerr) == driver.Conflict, rerr == nil && (of != prefix || len(r.Holders)+len(r.Waiters) == 0):
				continue
			case rerr != nil:
				yield(driver.Record{}, rerr)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.Record{}, err)
		}
	}
}

func (s *store) keys(ctx context.Context) ([]string, *link, int64, error) {
	l, err := s.session(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	root := s.root
	if root == "" {
		root = "/"
	}
	replies, err := l.zk.Do(ctx, zk.Sync(root), zk.GetChildren(root, false))
	if err != nil || replies[1].NoNode() {
		return nil, nil, 0, err
	}
	if replies[1].Err != nil {
		return nil, nil, 0, refused("listing "+root, replies[1].Err)
	}
	keys, err := replies[1].Children()
	if err != nil {
		return nil, nil, 0, err
	}
	now, err := s.serverTime(ctx, l)
	return keys, l, now, err
}

// mayBe is false for keys that tell that they are of another prefix: those of
// long names do not.
func mayBe(key, prefix string) bool {
	of, _, ok := strings.Cut(key, "+")
	if !ok {
		return true
	}
	of, err := url.PathUnescape(of)
	return err != nil || of == prefix
}

func (s *store) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	l, err := s.session(ctx)
	if err != nil {
		return 0, err
	}
	dir := s.dir(req.Name.Key)
	for try := 0; ; try++ {
		replies, err := l.zk.Do(ctx, zk.Sync(dir), zk.GetChildren(dir, false)) // our server may be behind the one that granted
		if err != nil {
			return 0, err
		}
		if replies[1].NoNode() {
			return driver.NotHeld, nil
		}
		v, err := listed(&replies[1])
		if err != nil {
			return 0, err
		}
		status, again, err := s.breakOne(ctx, l, dir, v.children[:v.holders()], req)
		if err != nil || !again || try == tries {
			return status, err
		}
	}
}

// breakOne breaks the one of the holders who is meant. again says that what was
// read is not true any more.
func (s *store) breakOne(ctx context.Context, l *link, dir string, holders []child, req *driver.BreakRequest) (status driver.BreakStatus, again bool, err error) {
	if len(holders) == 0 {
		return driver.NotHeld, false, nil
	}
	ops := make([]zk.Op, len(holders))
	for i := range holders {
		ops[i] = zk.GetData(dir+"/"+holders[i].name, false)
	}
	replies, err := l.zk.Do(ctx, ops...)
	if err != nil {
		return 0, false, err
	}
	for i := range holders {
		data, stat, derr := replies[i].Data()
		switch {
		case replies[i].NoNode():
			again = true
			continue
		case replies[i].Err != nil || derr != nil:
			return 0, false, refused("reading a holder", replies[i].Err)
		}
		if req.Token != 0 && uint64(stat.Czxid) != req.Token || req.Token == 0 && holders[i].owner != req.Owner { //nolint:gosec // grows from 1
			continue
		}
		return s.breakNode(ctx, l, dir+"/"+holders[i].name, data, stat.Version, req)
	}
	return driver.Mismatch, again, nil
}

func (s *store) breakNode(ctx context.Context, l *link, path string, data []byte, version int32, req *driver.BreakRequest) (status driver.BreakStatus, again bool, err error) {
	r := parseRecord(data)
	r.broken, r.reason = true, req.Reason
	op, status := zk.SetData(path, r.bytes(), version), driver.Marked
	if req.Force {
		op, status = zk.Delete(path), driver.Freed
	}
	replies, err := l.zk.Do(ctx, op)
	switch {
	case err != nil:
		return 0, false, err
	case replies[0].NoNode(), errors.Is(replies[0].Err, zk.ErrBadVersion):
		return driver.NotHeld, true, nil
	case replies[0].Err != nil:
		return 0, false, refused("breaking", replies[0].Err)
	}
	return status, false, nil
}
