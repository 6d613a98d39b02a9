//go:build linux

package filelock

import (
	"errors"
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
