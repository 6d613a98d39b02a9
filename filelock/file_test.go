//go:build linux

package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestFullDisk(t *testing.T) {
	dir := mountTmpfs(t, "size=16k")
	c := openStore(t, dir, nil)
	until(t, "the first sweep", func() bool { _, err := os.Stat(dir + "/" + floorName); return err == nil })
	filler, err := os.Create(dir + "/filler")
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	filler.Close()
	kind, err := c.kindOf(request("k", driver.Exclusive))
	if kind != driver.Unavailable || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir+"/k.lock") {
		t.Fatal(kind, err)
	}
	if kind, err := c.kindOf(request("r", driver.Shared)); kind != driver.Unavailable {
		t.Fatal(kind, err)
	}
	if left, _ := filepath.Glob(dir + "/*" + suffix); len(left) != 0 {
		t.Fatalf("left behind: %q", left)
	}
	if err := os.Remove(dir + "/filler"); err != nil {
		t.Fatal(err)
	}
	c.hold("k", driver.Exclusive).release()
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := mountTmpfs(t, "")
	c := openStore(t, dir, nil)
	c.hold("k", driver.Exclusive).release()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		// The store's kept descriptors are open for writing; so a fresh store.
		c.Close()
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
	fresh := openStore(t, dir, nil)
	for _, key := range []string{"k", "new"} {
		if kind, err := fresh.kindOf(request(key, driver.Exclusive)); kind != driver.Denied || !errors.Is(err, syscall.EROFS) {
			t.Fatal(kind, err)
		}
	}
	if r, err := fresh.Inspect(t.Context(), driver.Name{Key: "k", Full: "k"}); err != nil || len(r.Holders) != 0 {
		t.Fatal(r, err)
	}
}

func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("this test needs root, to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// squatters put something else where a lock file belongs.
var squatters = map[string]func(t *testing.T, path string){
	"symlink": func(t *testing.T, path string) {
		t.Helper()
		victim := t.TempDir() + "/victim"
		if err := errors.Join(os.WriteFile(victim, nil, 0o600), os.Symlink(victim, path)); err != nil {
			t.Fatal(err)
		}
	},
	"dangling symlink": func(t *testing.T, path string) {
		t.Helper()
		if err := os.Symlink(t.TempDir()+"/none", path); err != nil {
			t.Fatal(err)
		}
	},
	"fifo": func(t *testing.T, path string) {
		t.Helper()
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	},
	"directory": func(t *testing.T, path string) {
		t.Helper()
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	},
	"hard link": func(t *testing.T, path string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Link(path+"2", path)); err != nil {
			t.Fatal(err)
		}
	},
	"foreign": func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("4711\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	},
	"other version": func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("holdfast-lock 2 …"), 0o600); err != nil {
			t.Fatal(err)
		}
	},
}

func TestWhatIsNoLockFile(t *testing.T) {
	t.Parallel()
	for name, squat := range squatters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openStore(t, t.TempDir(), nil)
			path := c.path + "/k.lock"
			squat(t, path)
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, req := range []*driver.AcquireRequest{
				request("k", driver.Exclusive), request("k", driver.Shared), request("k", driver.Permits, 1, 2),
			} {
				if kind, err := c.kindOf(req); kind != driver.Conflict || !strings.Contains(err.Error(), path) {
					t.Fatal(kind, err)
				}
			}
			c.sweep(t.Context(), 0)
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
				t.Fatal(after, err)
			}
			for r, err := range c.List(t.Context(), "app") {
				t.Fatal(r, err)
			}
		})
	}
}

// A lock file that a person cut while it was held goes on to be held, is seen to
// be, and is whole again with the next grant.
func TestTruncatedFile(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]*driver.AcquireRequest{
		"exclusive": request("app+jobs%2f1", driver.Exclusive), "shared": request("app+jobs%2f1", driver.Shared),
		"permits": request("app+jobs%2f1", driver.Permits, 3, 3),
	} {
		for _, size := range []int64{0, 5, headerSize} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				t.Parallel()
				c := openStore(t, t.TempDir(), nil)
				again := *ask
				again.Name.Full = "jobs/1"
				res, err := c.Acquire(t.Context(), ask)
				if err != nil || res.Status != driver.Granted {
					t.Fatal(res, err)
				}
				if err := os.Truncate(c.path+"/"+ask.Name.Key+suffix, size); err != nil {
					t.Fatal(err)
				}
				var listed []driver.Record
				for r, err := range c.List(t.Context(), "app") {
					if err != nil {
						t.Fatal(err)
					}
					listed = append(listed, r)
				}
				shown, err := c.Inspect(t.Context(), again.Name)
				if err != nil || len(listed) != 1 {
					t.Fatal(listed, err)
				}
				for _, r := range []driver.Record{listed[0], shown} {
					if r.Name != "jobs/1" || len(r.Holders) != 1 || r.Holders[0].Owner != (driver.Owner{}) || !strings.Contains(r.Holders[0].Label, "damaged") {
						t.Errorf("%+v", r)
					}
				}
				for r, err := range c.List(t.Context(), "other") {
					t.Errorf("listed under another prefix: %+v %v", r, err)
				}
				for _, mode := range []driver.Mode{driver.Exclusive, ask.Mode} {
					if ask.Mode == driver.Shared && mode == driver.Shared {
						continue // whom readers meet is no matter to a reader
					}
					other := request(ask.Name.Key, mode, 1, 3)
					if second, err := c.Acquire(t.Context(), other); err == nil && second.Status == driver.Granted {
						t.Errorf("granted twice")
					}
				}
				g := gripOf(c, ask, res.Grant)
				if r := g.renew(); r.Status != driver.Renewed {
					t.Errorf("%+v", r)
				}
				g.release()
				again.Owner = newOwner()
				if next, err := c.Acquire(t.Context(), &again); err != nil || next.Status != driver.Granted || next.Grant.Token <= g.token {
					t.Fatal(next, err)
				}
				if r, err := c.Inspect(t.Context(), again.Name); err != nil || len(r.Holders) != 1 || r.Holders[0].Owner != again.Owner {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
	}
}

func TestRemovedFile(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	g := c.hold("k", driver.Exclusive)
	w := c.wait("k", driver.Exclusive)
	until(t, "parked", func() bool { return crowded(c.path, "k") })
	if err := os.Remove(c.path + "/k.lock"); err != nil {
		t.Fatal(err)
	}
	if next := w.granted(t); next.token <= g.token { // a waiter notices
		t.Fatalf("token %d after %d", next.token, g.token)
	}
	if r := g.renew(); r.Status != driver.Lost {
		t.Fatalf("%+v", r)
	}
	if ok, err := g.free(); ok || err != nil {
		t.Fatal(ok, err)
	}
	c.mustBeHeld("k", driver.Exclusive)
}
