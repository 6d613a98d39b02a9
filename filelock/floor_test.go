//go:build linux

package filelock

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A floor that a full disk cut short, or a person garbled, stops nobody: tokens
// go on from the clock, and the next program that opens the directory writes it
// anew.
func TestDamagedFloor(t *testing.T) {
	t.Parallel()
	good := string(floorRecord{token: 1, swept: time.Now().Unix()}.text())
	for name, text := range map[string]string{
		"cut in its first word": good[:4],
		"cut in its token":      good[:floorAt+3],
		"no digits":             strings.Replace(good, "token=0", "token=?", 1),
		"no digits at the end":  good[:sweptAt] + "never\n" + good[sweptAt+6:],
		"beyond all tokens":     strings.Replace(good, "token=0000", "token=9999", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openStore(t, t.TempDir(), nil)
			path := c.path + "/" + floorName
			first := c.hold("k", driver.Exclusive)
			first.release()
			until(t, "swept", func() bool { return c.sweep(t.Context(), 0) == 1 })
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"k", "new"} {
				g := c.hold(key, driver.Exclusive)
				if g.token <= first.token {
					t.Errorf("%s: token %d after %d", key, g.token, first.token)
				}
				g.release()
			}
			openStore(t, c.path, nil)
			until(t, "the floor is written anew", func() bool {
				token, err := readFloor(c.dir.Load())
				return err == nil && token > first.token
			})
			if b, err := os.ReadFile(path); err != nil || len(b) != len(floorForm) {
				t.Errorf("%q %v", b, err)
			}
		})
	}
}

// What is no floor of ours is never touched; the error says what to do.
func TestForeignFloor(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"foreign": "4711\n", "other version": "holdfast-floor 2 …"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := dir + "/" + floorName
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := openStore(t, dir, nil)
			kind, err := c.kindOf(request("k", driver.Exclusive))
			if kind != driver.Conflict || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away") {
				t.Error(kind, err)
			}
			c.sweep(t.Context(), 0)
			if b, err := os.ReadFile(path); err != nil || string(b) != text {
				t.Errorf("%q %v", b, err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			c.hold("k", driver.Exclusive).release()
		})
	}
}
