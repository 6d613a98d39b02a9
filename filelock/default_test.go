//go:build linux

package filelock

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

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

// The fallback is for those who may not make theirs, and only until it exists.
func TestDefaultDirectoryOfOrdinaryUsers(t *testing.T) {
	t.Parallel()
	first, second := stickyDir(t), stickyDir(t)
	if err := os.Chmod(first, 0o755); err != nil {
		t.Fatal(err)
	}
	answer := func(first string) string {
		t.Helper()
		cmd := command("default", first, second)
		cmd.SysProcAttr = nobody()
		return start(t, cmd).say("")
	}
	mine := "/holdfast-65534"
	if got := answer(first); got != second+mine+" <nil>" {
		t.Fatal(got)
	}
	if got := answer(first + "/none"); got != second+mine+" <nil>" {
		t.Fatal(got)
	}
	if err := os.Symlink("/etc", first+mine); err != nil {
		t.Fatal(err)
	}
	if got := answer(first); !strings.Contains(got, first+mine+" is a symbolic link") {
		t.Fatal(got)
	}
	if err := errors.Join(os.Remove(first+mine), os.Mkdir(first+mine, 0o700), os.Chown(first+mine, 65534, 65534)); err != nil {
		t.Fatalf("this test needs root: %v", err)
	}
	if got := answer(first); got != first+mine+" <nil>" {
		t.Fatal(got)
	}
}

// What may pass must not part the programs of one user.
func TestDefaultDirectoryOnAFullDisk(t *testing.T) {
	first, second := mountTmpfs(t, "nr_inodes=1"), t.TempDir()
	dir, err := defaultDir(first, second, os.Getuid())
	if driver.KindOf(err) != driver.Unavailable || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), first) {
		t.Fatal(dir, err)
	}
}
