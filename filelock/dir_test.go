//go:build linux

package filelock

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

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

func TestDirectoryIsNone(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := errors.Join(os.WriteFile(base+"/file", nil, 0o600), os.Mkdir(base+"/real", 0o700), os.Symlink(base+"/real", base+"/link")); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]driver.Kind{
		"/file": driver.Unavailable, "/file/below": driver.Unavailable, "/link": driver.Denied,
		"/none": driver.Unavailable, "/none/below": driver.Unavailable,
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
