package memlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (c *store) SetValue(ctx context.Context, req *driver.ValueRequest) (held bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c.step(func(s *Server, now time.Time) {
		e := s.entry(req.Name)
		s.advance(e, now)
		h := e.holder(req.Owner)
		if h == nil || req.Token != 0 && req.Token != h.token {
			return
		}
		if held = true; req.Seq > h.seq {
			h.value, h.seq = req.Value, req.Seq
			s.changed(e)
		}
	})
	return held, nil
}

func (c *store) Leader(ctx context.Context, n driver.Name) (leader *driver.Holder, err error) {
	c.step(func(s *Server, now time.Time) {
		e := s.entry(n)
		s.advance(e, now)
		if len(e.holders) == 1 && e.holders[0].mode == driver.Exclusive && e.holders[0].owner != (driver.Owner{}) {
			h := e.holders[0].describe(now)
			leader = &h
		}
	})
	return leader, ctx.Err()
}

// watch is told of the changes of one name.
type watch struct{ bell chan struct{} }

// changed tells who watches the name.
func (s *Server) changed(e *entry) {
	for w := range s.heard[e.name.Key] {
		select {
		case w.bell <- struct{}{}:
		default: // has not looked since the last one
		}
	}
}

func (c *store) Watch(ctx context.Context, n driver.Name, changed func()) error {
	w := &watch{bell: make(chan struct{}, 1)}
	w.bell <- struct{}{} // it watches
	c.step(func(s *Server, _ time.Time) {
		if s.heard[n.Key] == nil {
			s.heard[n.Key] = map[*watch]bool{}
		}
		s.heard[n.Key][w] = true
	})
	defer c.step(func(s *Server, _ time.Time) {
		if delete(s.heard[n.Key], w); len(s.heard[n.Key]) == 0 {
			delete(s.heard, n.Key)
		}
	})
	for {
		select {
		case <-w.bell:
			changed()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
