//go:build linux

package filelock

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestTwoStoresInOneProcessExclude(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openStore(t, dir, nil), openStore(t, dir, nil)
	g := a.hold("k", driver.Exclusive)
	a.mustBeHeld("k", driver.Exclusive)
	b.mustBeHeld("k", driver.Exclusive)
	b.mustBeHeld("k", driver.Shared)
	g.release()
	if ok, err := g.free(); ok || err != nil {
		t.Fatalf("second release: %v, %v", ok, err)
	}
	g2 := b.hold("k", driver.Exclusive)
	if g2.token <= g.token {
		t.Fatalf("token %d after %d", g2.token, g.token)
	}
	if r := g.renew(); r.Status != driver.Lost {
		t.Fatalf("renewal after release: %+v", r)
	}
}

func TestRepeatedAcquire(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	req := request("k", driver.Exclusive)
	first, err := c.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Acquire(t.Context(), req); err != nil || again.Grant != first.Grant || again.Status != driver.Granted {
		t.Fatal(again, err)
	}
}

func TestHeldTellsTheHolder(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	g := c.hold("k", driver.Exclusive)
	res, err := c.Acquire(t.Context(), request("k", driver.Exclusive))
	if err != nil || res.Queue.Holder == nil || res.Queue.Holder.Owner != g.ref.Owner || res.Queue.Holder.Token != g.token {
		t.Fatalf("%+v %v", res.Queue.Holder, err)
	}
}

func TestReadersAtOneMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stores := []*client{openStore(t, dir, nil), openStore(t, dir, nil)}
	for range 200 {
		var wg sync.WaitGroup
		grips := make([]*grip, 8)
		for i := range grips {
			wg.Go(func() { grips[i] = stores[i%2].tryHold("k", driver.Shared) })
		}
		wg.Wait()
		seen := map[uint64]bool{}
		for i, g := range grips {
			if g == nil {
				t.Fatalf("reader %d was refused", i)
			}
			if seen[g.token] {
				t.Fatalf("token %d twice", g.token)
			}
			seen[g.token] = true
			g.release()
		}
	}
}

func TestWaitingWriterStopsReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openStore(t, dir, nil), openStore(t, dir, nil)
	reader := a.hold("k", driver.Shared)
	second := b.hold("k", driver.Shared)
	w := a.wait("k", driver.Exclusive)
	until(t, "the writer waits", func() bool { return gateWaited(dir, "k") })
	b.mustBeHeld("k", driver.Shared)
	late := b.wait("k", driver.Shared)
	until(t, "the reader waits", func() bool { return crowded(dir, "k") })
	reader.release()
	second.release()
	writer := w.granted(t)
	b.mustBeHeld("k", driver.Shared)
	writer.release()
	if g := late.granted(t); g.token <= writer.token {
		t.Fatalf("the reader overtook: %d, %d", g.token, writer.token)
	}
}

func TestPermitsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openStore(t, dir, nil), openStore(t, dir, nil)
	first := a.hold("s", driver.Permits, 2, 3)
	one := a.hold("s", driver.Permits, 1, 3)
	b.mustBeHeld("s", driver.Permits, 1, 3)
	one.release()
	big := b.wait("s", driver.Permits, 3, 3)
	until(t, "the big one waits", func() bool { return gateWaited(dir, "s") })
	a.mustBeHeld("s", driver.Permits, 1, 3) // there is one, but somebody waits
	first.release()
	g := big.granted(t)
	a.mustBeHeld("s", driver.Permits, 1, 3)
	g.release()
	for range 3 {
		a.hold("s", driver.Permits, 1, 3)
	}
	b.mustBeHeld("s", driver.Permits, 1, 3)
}

func TestKindsConflict(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	for _, tc := range []struct {
		name string
		hold *driver.AcquireRequest
		ask  []*driver.AcquireRequest
	}{
		{"semaphore", request("a", driver.Permits, 1, 3), []*driver.AcquireRequest{
			request("a", driver.Permits, 1, 4), request("a", driver.Exclusive), request("a", driver.Shared),
		}},
		{"full semaphore", request("d", driver.Permits, 3, 3), []*driver.AcquireRequest{
			request("d", driver.Permits, 1, 4), request("d", driver.Exclusive), request("d", driver.Shared),
		}},
		{"exclusive", request("b", driver.Exclusive), []*driver.AcquireRequest{request("b", driver.Permits, 1, 3)}},
		{"shared", request("c", driver.Shared), []*driver.AcquireRequest{request("c", driver.Permits, 1, 3)}},
	} {
		res, err := c.Acquire(t.Context(), tc.hold)
		if err != nil || res.Status != driver.Granted {
			t.Fatal(tc.name, res, err)
		}
		for _, ask := range tc.ask {
			if kind, err := c.kindOf(ask); kind != driver.Conflict {
				t.Errorf("%s: %v: %v", tc.name, kind, err)
			}
			if _, err := c.Block(t.Context(), ask); c.Classify(err) != driver.Conflict {
				t.Errorf("%s: block: %v", tc.name, err)
			}
		}
		gripOf(c, tc.hold, res.Grant).release()
		for _, ask := range tc.ask { // the name is free: any kind will do
			res, err := c.Acquire(t.Context(), ask)
			if err != nil || res.Status != driver.Granted {
				t.Fatal(tc.name, res, err)
			}
			gripOf(c, ask, res.Grant).release()
		}
	}
}

func TestManyHoldersAreListed(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	var grips []*grip
	for range 100 {
		grips = append(grips, c.hold("k", driver.Shared))
	}
	sem := c.hold("s", driver.Permits, 2, 5)
	c.hold("free", driver.Exclusive).release()
	found := map[string]driver.Record{}
	for r, err := range c.List(t.Context(), "app") {
		if err != nil {
			t.Fatal(err)
		}
		found[r.Name] = r
	}
	if len(found) != 2 || len(found["Name of k"].Holders) != 100 {
		t.Fatalf("%d names, %d holders", len(found), len(found["Name of k"].Holders))
	}
	s := found["Name of s"]
	if s.Limit != 5 || s.Mode != driver.Permits || s.Holders[0].Permits != 2 || s.Holders[0].Owner != sem.ref.Owner {
		t.Fatalf("%+v", s)
	}
	for r, err := range c.List(t.Context(), "other") {
		t.Fatalf("of another application: %+v, %v", r, err)
	}
	for _, g := range grips {
		g.release()
	}
	r, err := c.Inspect(t.Context(), grips[0].ref.Name)
	if err != nil || len(r.Holders) != 0 {
		t.Fatal(r, err)
	}
}

func TestNamesChurn(t *testing.T) {
	c := openStore(t, t.TempDir(), &Options{IdleDescriptors: 16, IdleFiles: 50 * time.Millisecond})
	long := c.hold("long", driver.Exclusive)
	before := descriptors(t)
	for i := range 1000 {
		c.hold("k"+strconv.Itoa(i), driver.Exclusive).release()
	}
	if n := descriptors(t); n > before+20 {
		t.Fatalf("%d descriptors, %d before", n, before)
	}
	until(t, "files are swept", func() bool {
		entries, err := os.ReadDir(c.path)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) <= 2 // the one that is held, and the floor
	})
	c.mustBeHeld("long", driver.Exclusive)
	if r := long.renew(); r.Status != driver.Renewed {
		t.Fatalf("%+v", r)
	}
	long.release()
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestTokensGrow(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	last := uint64(0)
	grow := func(g *grip) *grip {
		t.Helper()
		if g.token <= last {
			t.Fatalf("token %d after %d", g.token, last)
		}
		last = g.token
		return g
	}
	for range 100 {
		grow(c.hold("k", driver.Exclusive)).release()
	}
	// As if the clock had been far ahead.
	ahead(t, c, "k", 1<<52)
	last = 1 << 52
	grow(c.hold("k", driver.Exclusive)).release()
	grow(c.hold("k", driver.Shared)).release()
	until(t, "swept", func() bool { return c.sweep(t.Context(), 0) == 1 }) // another may be at it
	g := grow(c.hold("k", driver.Exclusive))
	status, err := c.Break(t.Context(), &driver.BreakRequest{Name: g.ref.Name, Token: g.token, Reason: "test", Force: true})
	if err != nil || status != driver.Freed {
		t.Fatal(status, err)
	}
	grow(c.hold("k", driver.Exclusive)).release()
	ahead(t, c, "k", maxToken)
	if kind, err := c.kindOf(request("k", driver.Exclusive)); kind != driver.Unavailable || !strings.Contains(err.Error(), "token") {
		t.Fatal(kind, err)
	}
}

// ahead sets the last token of a name.
func ahead(t *testing.T, c *client, key string, token uint64) {
	t.Helper()
	f, err := os.OpenFile(c.path+"/"+key+suffix, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [headerSize]byte
	putHeader(b[:], header{kind: kindLock, token: token})
	if _, err := f.WriteAt(b[:], 0); err != nil {
		t.Fatal(err)
	}
}
