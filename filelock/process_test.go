//go:build linux

package filelock

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestExclusionOfProcessesWhileFilesAreSwept(t *testing.T) {
	t.Parallel()
	dir, counter := t.TempDir(), t.TempDir()+"/counter"
	if err := os.WriteFile(counter, []byte("0 0"), 0o600); err != nil {
		t.Fatal(err)
	}
	const processes, rounds = 8, 150
	var children []*child
	for range processes {
		children = append(children, start(t, command("counter", dir, counter, strconv.Itoa(rounds))))
	}
	for _, ch := range children {
		if answer := ch.say(""); answer != "done" {
			t.Fatal(answer)
		}
	}
	b, err := os.ReadFile(counter)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Fields(string(b))[0]; n != strconv.Itoa(processes*rounds) {
		t.Fatalf("counted %s, want %d", n, processes*rounds)
	}
}

func TestKilledHolderFreesAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		word string
		mode driver.Mode
	}{{"x", driver.Exclusive}, {"s", driver.Shared}, {"p", driver.Permits}} {
		t.Run(mode.word, func(t *testing.T) {
			t.Parallel()
			c := openStore(t, t.TempDir(), nil)
			ch := start(t, command("holder", c.path, "k", mode.word))
			if answer := ch.say(""); !strings.HasPrefix(answer, "1 ") {
				t.Fatal(answer)
			}
			want := driver.Exclusive
			w := c.wait("k", want)
			if mode.mode == driver.Permits {
				w.cancel()
				_ = w.ended(t)
				w = c.wait("k", driver.Permits, 3, 3)
			}
			until(t, "waiting", func() bool { return gateWaited(c.path, "k") || crowded(c.path, "k") })
			ch.kill()
			w.granted(t).release()
			c.hold("k", driver.Exclusive).release()
		})
	}
}

func TestTokensGrowOverAKill(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	ch := start(t, command("holder", c.path, "k", "x"))
	var status int
	var owner string
	var token uint64
	if _, err := fmt.Sscan(ch.say(""), &status, &owner, &token); err != nil || status != int(driver.Granted) {
		t.Fatal(err, status)
	}
	ch.kill()
	if g := c.hold("k", driver.Exclusive); g.token <= token {
		t.Fatalf("token %d after %d", g.token, token)
	}
}

func TestChildInheritsNothing(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	c.hold("k", driver.Exclusive)
	ch := start(t, command("descriptors"))
	if open := ch.say(""); strings.Contains(open, c.path) {
		t.Fatalf("the child has %s", open)
	}
}

func TestInheritedDescriptorKeepsTheHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, other := openStore(t, dir, nil), openStore(t, dir, nil)
	guard := inherit(t, c, c.hold("k", driver.Exclusive))
	if err := c.Close(); err != nil { // as a death of the holder
		t.Fatal(err)
	}
	other.mustBeHeld("k", driver.Exclusive)
	guard.kill()
	until(t, "free", func() bool { return other.tryHold("k", driver.Exclusive) != nil })
}

func TestReleaseFreesThoughDescriptorsWereInherited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, other := openStore(t, dir, nil), openStore(t, dir, nil)
	g := c.hold("k", driver.Exclusive)
	inherit(t, c, g)
	g.release()
	other.hold("k", driver.Exclusive).release()
	// What comes later is not the guard's.
	c.hold("k", driver.Exclusive)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	other.hold("k", driver.Exclusive)
}

// inherit starts a process that has the descriptors of a hold.
func inherit(t *testing.T, c *client, g *grip) *child {
	t.Helper()
	files, err := c.Inherit(g.ref.Owner)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command("sleeper")
	cmd.ExtraFiles = files
	guard := start(t, cmd)
	guard.say("")
	for _, f := range files {
		f.Close()
	}
	return guard
}

// asNobody makes a command another user's.
func nobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test needs root, to be two users")
	}
	t.Run("private", func(t *testing.T) {
		dir := stickyDir(t)
		c := openStore(t, dir, nil)
		c.hold("k", driver.Exclusive).release()
		cmd := command("holder", dir, "k", "x")
		cmd.SysProcAttr = nobody()
		answer := start(t, cmd).say("")
		if !strings.HasPrefix(answer, "error denied") || !strings.Contains(answer, dir+"/k.lock: permission denied") {
			t.Fatal(answer)
		}
	})
	t.Run("shared", func(t *testing.T) {
		old := syscall.Umask(0o077)
		defer syscall.Umask(old)
		dir := stickyDir(t)
		c := openStore(t, dir, &Options{Shared: true})
		g := c.hold("k", driver.Exclusive)
		cmd := command("holder", dir, "k", "x", "shared")
		cmd.SysProcAttr = nobody()
		if answer := start(t, cmd).say(""); !strings.HasPrefix(answer, "2 ") {
			t.Fatal(answer)
		}
		g.release()
		cmd = command("holder", dir, "k", "x", "shared")
		cmd.SysProcAttr = nobody()
		ch := start(t, cmd)
		if answer := ch.say(""); !strings.HasPrefix(answer, "1 ") {
			t.Fatal(answer)
		}
		c.mustBeHeld("k", driver.Exclusive)
		ch.kill()
		c.hold("k", driver.Exclusive).release()
	})
}

// stickyDir makes a directory as /tmp is.
func stickyDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "filelock") //nolint:usetesting // its parents must be open to all
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}
