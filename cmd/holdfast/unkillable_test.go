package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What cannot be killed keeps the lock, and is named.
func TestUnkillable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a program that runs as another user")
	}
	s := newShop(t)
	s.dir = filepath.Join(filepath.Dir(binary), "nobodys") // a test's own folder cannot be reached
	s.url = "file://" + s.dir
	if err := errors.Join(os.Mkdir(s.dir, 0o700), os.Chown(s.dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("run", "--grace", "100ms", "L", "--", becomeRoot(t), "--reuid=0", "sleep", "300")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p := s.launch(cmd)
	_, command := p.guardOf()
	poll(t, "the program", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", command))
		return string(b) == "sleep\x00300\x00"
	})
	p.signal(syscall.SIGTERM)
	poll(t, "its name", func() bool {
		return strings.Contains(p.err.String(), "cannot kill sleep (pid "+strconv.Itoa(command))
	})
	busy := func() bool {
		probe := s.command("run", "--wait", "0", "L", "--", "true")
		probe.Dir, probe.SysProcAttr = "/", cmd.SysProcAttr
		return s.launch(probe).wait().code == 75
	}
	if !busy() {
		t.Error("the lock is free")
	}
	p.signal(syscall.SIGKILL)
	poll(t, "the wrapper's end", func() bool { return zombie(p.Process.Pid) || gone(p.Process.Pid) })
	if !busy() {
		t.Error("the lock is free after the wrapper was killed, but the program runs")
	}
	_ = syscall.Kill(command, syscall.SIGKILL)
	poll(t, "the lock", func() bool { return !busy() })
}

const nobody = 65534

// becomeRoot is a setpriv that anybody may use to become root, as sudo would.
func becomeRoot(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(filepath.Dir(binary), "setpriv")
	if err := errors.Join(os.WriteFile(copied, b, 0o755), os.Chmod(copied, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	return copied
}
