//go:build linux

package filelock

import (
	"errors"
	"net/url"
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

func TestUnwritableDirectory(t *testing.T) {
	dir := stickyDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := command("holder", dir, "k", "x")
	cmd.SysProcAttr = nobody()
	answer := start(t, cmd).say("")
	if !strings.HasPrefix(answer, "error denied") || !strings.Contains(answer, dir+"/k.lock: permission denied") {
		t.Fatal(answer)
	}
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

func TestDirectoryIsNone(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := errors.Join(os.WriteFile(base+"/file", nil, 0o600), os.Mkdir(base+"/real", 0o700), os.Symlink(base+"/real", base+"/link")); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]driver.Kind{
		"/file": driver.Conflict, "/link": driver.Conflict, "/none": driver.Unavailable, "/none/below": driver.Unavailable,
	} {
		if _, err := New(base+path, nil); driver.KindOf(err) != kind || !strings.Contains(err.Error(), base+path) {
			t.Errorf("%s: %v: %v", path, driver.KindOf(err), err)
		}
	}
	s, err := New(base+"/made", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st, err := os.Stat(base + "/made"); err != nil || st.Mode().Perm() != 0o700 {
		t.Fatal(st, err)
	}
}

func TestNetworkFileSystem(t *testing.T) {
	// The last words of /proc, which is none of them, stand for one here.
	const procMagic = 0x9fa0
	networkTypes[procMagic] = "NFS"
	defer delete(networkTypes, procMagic)
	if _, err := New("/proc", nil); driver.KindOf(err) != driver.Unsupported || !strings.Contains(err.Error(), "NFS") {
		t.Fatal(err)
	}
	c := openStore(t, "/proc", &Options{AllowNetwork: true})
	if p := c.Properties(); p.Class != driver.ClassD || len(p.Warnings) == 0 || !strings.Contains(p.Warnings[0], "NFS") {
		t.Fatalf("%+v", p)
	}
}

func TestDefaultDirectory(t *testing.T) {
	t.Parallel()
	parent, uid := t.TempDir(), os.Getuid()
	dir, err := privateDir(parent, uid)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := privateDir(parent, uid); again != dir || err != nil {
		t.Fatal(again, err)
	}
	refused := func(what string) {
		t.Helper()
		if _, err := privateDir(parent, uid); driver.KindOf(err) != driver.Denied || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	refused("open to the group")
	if err := errors.Join(os.Remove(dir), os.Symlink(t.TempDir(), dir)); err != nil {
		t.Fatal(err)
	}
	refused("symbolic link")
	if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused("file")
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatalf("this test needs root: %v", err)
	}
	refused("another user's")
}

func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for raw, kind := range map[string]driver.Kind{
		"file://" + dir + "?shred=true":     driver.Invalid,
		"file://" + dir + "?network=maybe":  driver.Invalid,
		"file://" + dir + "?shared=1":       driver.Invalid,
		"file://host" + dir:                 driver.Invalid,
		"file:relative":                     driver.Invalid,
		"file://" + dir + "/none/but/deep":  driver.Unavailable,
		"file://u:secret@localhost" + dir:   driver.Invalid,
		"file://" + dir + "#fragment":       driver.Invalid,
		"file://" + dir + "?shared=true&x=": driver.Invalid,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = driver.Open(t.Context(), u, nil)
		if driver.KindOf(err) != kind || err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	u, err := url.Parse("file://" + dir + "/made?shared=true&network=allow")
	if err != nil {
		t.Fatal(err)
	}
	s, err := driver.Open(t.Context(), u, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st, err := os.Stat(dir + "/made"); err != nil || st.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Fatal(st.Mode(), err)
	}
}
