package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// fullPipe is the end of a pipe that is full, and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	fd := int(w.Fd()) // blocking from here on, as the command gets it
	err = syscall.SetNonblock(fd, true)
	for b := make([]byte, 4096); err == nil; {
		_, err = syscall.Write(fd, b)
	}
	if err = errors.Join(ignore(err, syscall.EAGAIN), syscall.SetNonblock(fd, false)); err != nil {
		t.Fatal(err)
	}
	return w
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// hung starts holdfast with a stderr whose reader hangs.
func (s *shop) hung(args ...string) *process {
	s.t.Helper()
	cmd := s.command(args...)
	cmd.Stderr = fullPipe(s.t)
	p := s.launch(cmd)
	p.says("up")
	return p
}

// What cannot be told must not keep the command alive, nor the name.
func TestHungReaderAndMaxRun(t *testing.T) {
	s := newShop(t)
	p := s.hung("run", "--max-run", "200ms", "--grace", "100ms", "L", "--", "sh", "-c", daemons+"echo up; yes >&2")
	p.wait().want(t, 124)
	s.noneLeft()
	s.free("L")
}

func TestHungReaderAndBreak(t *testing.T) {
	s := newShop(t)
	p := s.hung("run", "L", "--", "sh", "-c", "echo up; exec sleep 300")
	var record struct{ Holders []struct{ Token string } }
	if err := json.Unmarshal([]byte(s.run("show", "--json", "L").out), &record); err != nil || len(record.Holders) != 1 {
		t.Fatalf("%+v %v", record, err)
	}
	s.run("break", "L", "--token", record.Holders[0].Token, "--reason", "it hangs").want(t, 0)
	p.wait().want(t, 77)
	s.noneLeft()
	s.free("L")
}

func TestHungReaderAndKilledGuard(t *testing.T) {
	s := newShop(t)
	p := s.hung("run", "L", "--", "sh", "-c", daemons+"echo up; sleep 300")
	guard, _ := p.guardOf()
	_ = syscall.Kill(guard, syscall.SIGKILL)
	p.wait().want(t, 137)
	s.noneLeft()
	s.free("L")
}

// A guard that somebody has stopped passes TERM on all the same.
func TestTermWithStoppedGuard(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", `trap "exit 5" TERM; echo up; while :; do sleep 0.01; done`)
	p.says("up")
	guard, _ := p.guardOf()
	stop(t, guard)
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 5)
	s.noneLeft()
}

// If it hangs, the wrapper does its work after the grace.
func TestTermWithHungGuard(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "--grace", "1s", "L", "--", "sh", "-c", daemons+`trap "echo got" TERM; echo up; while :; do sleep 0.01; done`)
	p.says("up")
	guard, _ := p.guardOf()
	stop(t, guard)
	p.signal(syscall.SIGTERM)
	p.says("got")
	_ = syscall.Kill(guard, syscall.SIGSTOP) // again, before its time to kill comes
	p.wait().want(t, 137)
	s.noneLeft()
	s.free("L")
}

func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	poll(t, "the stop", func() bool { return state(pid) == "T" })
}

// With the guard dies the command itself, also if no wrapper can take over.
func TestCommandDiesWithTheGuard(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", "echo up; exec sleep 300")
	p.says("up")
	guard, command := p.guardOf()
	stop(t, p.Process.Pid)
	_ = syscall.Kill(guard, syscall.SIGKILL)
	poll(t, "the command's end", func() bool { return gone(command) || zombie(command) })
	p.signal(syscall.SIGKILL)
	p.wait()
	s.noneLeft()
}

// A store is the same however its URL is spelled.
func TestNestedRunOfTheSameStoreSpelledOtherwise(t *testing.T) {
	s := newShop(t)
	link := t.TempDir() + "/link" // the store's own directory may not be one
	if err := os.Symlink(filepath.Dir(s.dir), link); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{s.url + "/", "file://" + s.dir + "/./", "file://localhost" + s.dir, "file://" + link + "/" + filepath.Base(s.dir)} {
		s.run("run", "L", "--", binary, "run", "--store", url, "--wait", "0", "L", "--", "true").want(t, 0)
	}
	s.run("run", "L", "--", binary, "run", "--store", s.url+"?prefix=a", "--wait", "0", "L", "--", "true").want(t, 0)
	s.noneLeft()
}
