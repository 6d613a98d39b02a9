package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestNestedRunJustRuns(t *testing.T) {
	s := newShop(t)
	r := s.run("run", "L", "--", binary, "run", "--wait", "0", "L", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exit 4")
	if r.code != 4 || r.err != "" || len(r.out) < 10 {
		t.Errorf("%+v", r)
	}
	// Also below another name and another shell, and to any depth.
	r = s.run("run", "L", "--", "sh", "-c", binary+" run M -- sh -c '"+binary+" run --wait 0 L -- "+binary+" run --wait 0 L -- echo deep'; exit $?")
	if r.code != 0 || r.out != "deep\n" {
		t.Errorf("%+v", r)
	}
	s.free("L")
	s.noneLeft()
}

// Variables of a run prove nothing.
func TestStaleVariablesDoNotNest(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", "env | grep HOLDFAST_ ; echo up; exec sleep 300")
	p.says("up")
	cmd := s.command("run", "--wait", "0", "L", "--", "true")
	for line := range strings.SplitSeq(p.out.String(), "\n") {
		if strings.HasPrefix(line, "HOLDFAST_") {
			cmd.Env = append(cmd.Env, line)
		}
	}
	s.launch(cmd).wait().want(t, 75)
	// Nor do they below the guard of another run.
	inner := s.command("run", "M", "--", binary, "run", "--wait", "0", "L", "--", "true")
	inner.Env = append([]string{}, cmd.Env...)
	s.launch(inner).wait().want(t, 75)
}

func TestNestedRunOfAnotherStoreLocks(t *testing.T) {
	s := newShop(t)
	other := t.TempDir()
	if err := os.Chmod(other, 0o700); err != nil {
		t.Fatal(err)
	}
	r := s.run("run", "L", "--", binary, "run", "--store", "file://"+other, "L", "--", "sh", "-c", "echo $HOLDFAST_STORE")
	if r.code != 0 || strings.TrimSpace(r.out) != "file://"+other {
		t.Errorf("%+v", r)
	}
}

// Shared covers no exclusive: to wait for oneself would never end.
func TestNestedExclusiveInShared(t *testing.T) {
	s := newShop(t)
	s.run("run", "--shared", "L", "--", binary, "run", "L", "--", "true").want(t, 64, "would never end")
	s.run("run", "L", "--", binary, "run", "--shared", "L", "--", "true").want(t, 0)
}

// A signal to the outer run ends the inner one's command as well.
func TestNestedTreeDies(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", binary, "run", "L", "--", "sh", "-c", daemons+"echo up; sleep 300")
	p.says("up")
	p.signal(syscall.SIGKILL)
	poll(t, "the tree's end", func() bool { return len(s.alive()) == 0 })
	s.free("L")
}
