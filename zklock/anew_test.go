package zklock

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

// The servers delete a name's node when it was left for a while, and the numbers
// of its children begin anew in the next one: what a client knew of the former
// node counts no more.
func TestNameMadeAnew(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b := server.open(t), server.open(t)
	a.free(t, a.hold(t, t.Name()))
	l, err := a.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replies, err := l.zk.Do(t.Context(), zk.Delete(a.dir(nameOf(t.Name()).Key)))
	if err != nil || replies[0].Err != nil {
		t.Fatal(err, replies)
	}
	h := b.hold(t, t.Name())
	if _, status := a.try(t, t.Name()); status != driver.Held {
		t.Errorf("a second holder beside the first: status %d", status)
	}
	b.free(t, h)
}

// So it is if somebody wrote into the node before: that is all that its watch
// tells.
func TestNameWrittenAndMadeAnew(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b := server.open(t), server.open(t)
	a.free(t, a.hold(t, t.Name()))
	l, err := b.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := nameOf(t.Name())
	dir := b.dir(name.Key)
	replies, err := l.zk.Do(t.Context(), zk.SetData(dir, named(&name), -1), zk.Delete(dir))
	if err != nil || replies[0].Err != nil || replies[1].Err != nil {
		t.Fatal(err, replies)
	}
	h := b.hold(t, t.Name())
	if _, status := a.try(t, t.Name()); status != driver.Held {
		t.Errorf("a second holder beside the first: status %d", status)
	}
	b.free(t, h)
}

// Servers that lost all their data refuse whoever has seen more than they have: the
// session is given up then, and a new one made.
func TestDataLost(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	c := openAt(t, server.url(), shortTTL)
	c.hold(t, t.Name())
	server.Kill()
	if err := os.RemoveAll(filepath.Join(server.Dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the client recovers", func() bool {
		req := request(t.Name())
		req.TTL = shortTTL
		res, err := c.Acquire(t.Context(), req)
		return err == nil && res.Status == driver.Granted
	})
}

// What comes for a hold or place when its session has just ended, or its owner was
// just abandoned, is neither granted nor kept.
func TestTooLateToEnter(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	for _, granted := range []bool{true, false} {
		c := server.open(t)
		other := server.open(t)
		name := fmt.Sprintf("%s-%t", t.Name(), granted)
		if !granted {
			other.hold(t, name)
		}
		l, err := c.session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		late := func(between func(req *driver.AcquireRequest)) (driver.AcquireResult, error) {
			req := request(name)
			req.Queue = true
			n, v, err := c.create(t.Context(), l, req)
			if err != nil {
				t.Fatal(err)
			}
			between(req)
			return c.settle(t.Context(), n, v, req)
		}
		res, err := late(func(req *driver.AcquireRequest) {
			ref := driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}
			if _, err := c.Release(t.Context(), &driver.ReleaseRequest{Ref: ref, Abandon: true}); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil || res.Status != driver.Gone {
			t.Errorf("an abandoned owner: status %d, %v", res.Status, err)
		}
		res, err = late(func(*driver.AcquireRequest) { c.ended(l) })
		if c.Classify(err) != driver.Indeterminate || err == nil || res.Status != 0 {
			t.Errorf("of a session that ended: status %d, %v", res.Status, err)
		}
		c.mu.Lock()
		if len(c.nodes) > 0 {
			t.Errorf("%d nodes are kept", len(c.nodes))
		}
		c.mu.Unlock()
		l.zk.Close(true)
	}
}
