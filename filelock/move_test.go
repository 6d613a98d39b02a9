//go:build linux

package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	c := openStore(t, "locks", &Options{Create: true})
	c.hold("k", driver.Exclusive)
	elsewhere := t.TempDir()
	t.Chdir(elsewhere)
	c.looks(t)
	if _, err := os.Stat(elsewhere + "/locks"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a look made a directory", err)
	}
	c.mustBeHeld("k", driver.Exclusive)
	openStore(t, c.path, nil).mustBeHeld("k", driver.Exclusive)
	c.hold("other", driver.Exclusive)
	openStore(t, c.path, nil).mustBeHeld("other", driver.Exclusive)
}

// looks looks in all ways for a name that is free, and sweeps.
func (c *client) looks(t *testing.T) {
	t.Helper()
	name := driver.Name{Key: "free", Full: "free"}
	if r, err := c.Inspect(t.Context(), name); err != nil || len(r.Holders) != 0 {
		t.Fatal(r, err)
	}
	if status, err := c.Break(t.Context(), &driver.BreakRequest{Name: name, Token: 1}); err != nil || status != driver.NotHeld {
		t.Fatal(status, err)
	}
	for _, err := range c.List(t.Context(), "app") {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.sweep(t.Context(), time.Hour)
}

func TestLooksMakeNoDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/locks"
	c := openStore(t, dir, &Options{Create: true})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.looks(t)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a look made the directory", err)
	}
	c.hold("k", driver.Exclusive)
}

func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/locks"
	c := openStore(t, dir, &Options{Create: true})
	g := c.hold("k", driver.Exclusive)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if r := g.renew(); r.Status != driver.Lost {
		t.Fatalf("%+v", r)
	}
	c.hold("k", driver.Exclusive).release()
	if ok, err := g.free(); ok || err != nil {
		t.Fatal(ok, err)
	}
}

// moveAway renames a directory and makes another in its place; from then on no
// path that was looked at before counts as looked at.
func moveAway(t *testing.T, dir string) (old string) {
	t.Helper()
	old = dir + ".old"
	if err := errors.Join(os.Rename(dir, old), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	moved := time.Now()
	until(t, "what was verified is old", func() bool { return time.Since(moved) > 2*recheck })
	return old
}

func TestMovedDirectory(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]*driver.AcquireRequest{
		"exclusive": request("k", driver.Exclusive), "shared": request("k", driver.Shared), "permits": request("k", driver.Permits, 3, 3),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir() + "/locks"
			a := openStore(t, dir, &Options{Create: true})
			res, err := a.Acquire(t.Context(), ask)
			if err != nil || res.Status != driver.Granted {
				t.Fatal(res, err)
			}
			g := gripOf(a, ask, res.Grant)
			a.hold("idle", driver.Exclusive).release()
			moveAway(t, dir)
			b := openStore(t, dir, nil)
			next := b.hold("k", driver.Exclusive)
			if r := g.renew(); r.Status != driver.Lost {
				t.Fatalf("%+v", r)
			}
			if ok, err := g.free(); ok || err != nil {
				t.Fatal(ok, err)
			}
			// The old store goes where the path leads, also with a file that it has open.
			a.mustBeHeld("k", driver.Exclusive)
			a.hold("idle", driver.Exclusive)
			b.mustBeHeld("idle", driver.Exclusive)
			a.hold("new", driver.Exclusive)
			b.mustBeHeld("new", driver.Exclusive)
			if r, err := a.Inspect(t.Context(), g.ref.Name); err != nil || len(r.Holders) != 1 || r.Holders[0].Owner != next.ref.Owner {
				t.Fatalf("%+v %v", r, err)
			}
		})
	}
}

// What is held or refused in the old directory says nothing of the name.
func TestMovedDirectoryRefusesNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/locks"
	a := openStore(t, dir, &Options{Create: true})
	b, other := openStore(t, dir, nil), openStore(t, dir, nil)
	b.hold("p", driver.Exclusive).release() // so b has the file open
	other.hold("x", driver.Exclusive)
	other.hold("p", driver.Permits, 1, 2)
	w := a.wait("x", driver.Exclusive)
	until(t, "parked", func() bool { return crowded(dir, "x") })
	moveAway(t, dir)
	w.granted(t) // a waiter notices
	openStore(t, dir, nil).mustBeHeld("x", driver.Exclusive)
	b.hold("p", driver.Exclusive)
}

func TestMovedDirectoryWithoutAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/locks"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := openStore(t, dir, nil)
	g := c.hold("k", driver.Exclusive)
	old := moveAway(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if r := g.renew(); r.Status != driver.Lost {
		t.Fatalf("%+v", r)
	}
	for _, key := range []string{"k", "new"} {
		if kind, err := c.kindOf(request(key, driver.Exclusive)); kind != driver.Unavailable || !strings.Contains(err.Error(), dir) {
			t.Fatal(kind, err)
		}
	}
	if left, err := filepath.Glob(old + "/*" + suffix); err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if kind, err := c.kindOf(request("k", driver.Exclusive)); kind != driver.Unavailable || !strings.Contains(err.Error(), dir+" is not a directory") {
		t.Fatal(kind, err)
	}
}
