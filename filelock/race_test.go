//go:build linux

package filelock

import (
	"context"
	"crypto/rand"
	mrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func storeAt(t *testing.T, dir string) *store {
	t.Helper()
	d, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	s, ok := d.(*store)
	if !ok {
		t.Fatalf("%T", d)
	}
	return s
}

func exclusive(n driver.Name) *driver.AcquireRequest {
	r := &driver.AcquireRequest{Name: n, Mode: driver.Exclusive, TTL: time.Second}
	_, _ = rand.Read(r.Owner[:])
	return r
}

func giveBack(t *testing.T, s *store, r *driver.AcquireRequest) {
	t.Helper()
	if _, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: driver.Ref{Name: r.Name, Owner: r.Owner}}); err != nil {
		t.Error(err)
	}
}

// Two stores have a file open that a third sweeps away: what the first writes
// into it does not let the second in.
func TestSweptFileGrantsNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, c, sweeper := storeAt(t, dir), storeAt(t, dir), storeAt(t, dir)
	n := driver.Name{Key: "+x", Full: "x"}
	for range 100 {
		for _, s := range []*store{c, b} {
			r := exclusive(n)
			if _, err := s.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			giveBack(t, s, r)
		}
		sweeper.sweep(t.Context(), 0)
		first, second := exclusive(n), exclusive(n)
		got1, err1 := c.Acquire(t.Context(), first)
		got2, err2 := b.Acquire(t.Context(), second)
		if err1 != nil || err2 != nil || got1.Status != driver.Granted || got2.Status != driver.Held {
			t.Fatalf("%v %v, %v %v: want granted, held", got1.Status, err1, got2.Status, err2)
		}
		giveBack(t, c, first)
	}
}

// Sweeps at every moment: never two in, and tokens only grow. With forced
// breaks two may be in, but tokens grow still.
func TestStressSweepAndForce(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{false, true} {
		t.Run("force="+strconv.FormatBool(force), func(t *testing.T) {
			t.Parallel()
			stress(t, force)
		})
	}
}

type stressed struct {
	inside, last [3]atomic.Int64
	grants       atomic.Int64
}

func stress(t *testing.T, force bool) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var w stressed
	for range 4 {
		s := storeAt(t, dir)
		all.Go(func() {
			for ctx.Err() == nil {
				s.sweep(ctx, 0)
				<-time.After(time.Duration(mrand.IntN(400)) * time.Microsecond)
			}
		})
		if force {
			all.Go(func() { breakAll(ctx, s) })
		}
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					w.visit(t, s, force)
				}
			})
		}
	}
	all.Wait()
	if w.grants.Load() < 100 {
		t.Errorf("only %d grants: nothing was proven", w.grants.Load())
	}
}

func nameOf(k int) driver.Name {
	full := "x" + strconv.Itoa(k)
	return driver.Name{Key: "+" + full, Full: full}
}

// visit is one attempt at a random name, and a short hold.
func (w *stressed) visit(t *testing.T, s *store, force bool) {
	t.Helper()
	k := mrand.IntN(len(w.inside))
	r := exclusive(nameOf(k))
	seen := w.last[k].Load()
	res, err := s.Acquire(t.Context(), r)
	if err != nil || res.Status != driver.Granted {
		return
	}
	w.grants.Add(1)
	if n := w.inside[k].Add(1); n > 1 && !force {
		t.Errorf("%d holders of %s", n, r.Name.Full)
	}
	token := int64(res.Grant.Token) //nolint:gosec // below 2^55
	if token <= seen {
		t.Errorf("token %d of %s after %d", token, r.Name.Full, seen)
	}
	w.raise(k, token)
	if mrand.IntN(4) == 0 {
		<-time.After(time.Duration(mrand.IntN(300)) * time.Microsecond)
	}
	w.inside[k].Add(-1)
	_, _ = s.Release(t.Context(), &driver.ReleaseRequest{Ref: driver.Ref{Name: r.Name, Owner: r.Owner, Token: res.Grant.Token}})
}

func (w *stressed) raise(k int, token int64) {
	for {
		if o := w.last[k].Load(); token <= o || w.last[k].CompareAndSwap(o, token) {
			return
		}
	}
}

func breakAll(ctx context.Context, s *store) {
	for ctx.Err() == nil {
		n := nameOf(mrand.IntN(3))
		if record, err := s.Inspect(ctx, n); err == nil && len(record.Holders) > 0 {
			h := record.Holders[0]
			_, _ = s.Break(ctx, &driver.BreakRequest{Name: n, Token: h.Token, Owner: h.Owner, Reason: "test", Force: true})
		}
		<-time.After(time.Duration(mrand.IntN(1000)) * time.Microsecond)
	}
}
