package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// B035: a wait ends at its bound, neither long before nor long after.
func TestWaitEndsInTime(t *testing.T) {
	s := newShop(t)
	s.start("run", "L", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	for _, wait := range []time.Duration{50 * time.Millisecond, 250 * time.Millisecond, time.Second} {
		began := time.Now()
		s.run("run", "--wait", wait.String(), "L", "--", "true").want(t, 76, "held by")
		took := time.Since(began)
		if took < wait {
			t.Errorf("--wait %v took %v", wait, took)
		}
		t.Logf("--wait %v took %v, with the start of the program", wait, took)
	}
}

// B033: busy, a wait that ran out, a signal and a broken store have each a
// status of their own.
func TestReasonsAreToldApart(t *testing.T) {
	s := newShop(t)
	s.start("run", "L", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	s.run("run", "--wait", "0", "L", "--", "true").want(t, 75)
	s.run("run", "--wait", "100ms", "L", "--", "true").want(t, 76)
	s.run("run", "--store", "file:///no/such/dir", "L", "--", "true").want(t, 69, "/no/such/dir")
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		p := s.start("run", "L", "--", "echo", "ran")
		poll(t, "the waiter", func() bool { return waits(p.Process.Pid) })
		p.signal(sig)
		if r := p.wait(); r.code != code || r.out != "" {
			t.Errorf("%v: %+v", sig, r)
		}
	}
}

func TestWaiterGetsTheLock(t *testing.T) {
	s := newShop(t)
	holder := s.start("run", "L", "--", "sh", "-c", "echo up; read x < "+fifo(t, s.dir+".fifo"))
	holder.says("up")
	waiter := s.start("run", "--wait", "1h", "L", "--", "echo", "ran")
	poll(t, "the waiter", func() bool { return waits(waiter.Process.Pid) })
	if err := os.WriteFile(s.dir+".fifo", []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder.wait().want(t, 0)
	if r := waiter.wait(); r.code != 0 || r.out != "ran\n" {
		t.Errorf("%+v", r)
	}
}

func fifo(t *testing.T, path string) string {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// Where there is no terminal, a long wait is told once.
func TestLongWaitIsTold(t *testing.T) {
	s := newShop(t)
	s.start("run", "--label", "web1/job[77]", "L", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	p := s.start("run", "--wait", "11s", "L", "--", "true")
	p.wait().want(t, 76, "still waiting for L after 10s: held by web1/job[77]", "waited 11s in vain")
}

// That the store went away is told when it is, and the wait ends when it stays
// away.
func TestStoreThatGoesAway(t *testing.T) {
	s := newShop(t)
	above := filepath.Join(s.dir, "above")
	if err := os.Mkdir(above, 0o700); err != nil {
		t.Fatal(err)
	}
	s.url = "file://" + above + "/store"
	s.start("run", "--grace", "0s", "L", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	p, structured := s.start("run", "L", "--", "true"), s.start("run", "--json", "L", "--", "true")
	for _, w := range []*process{p, structured} {
		poll(t, "the waiter", func() bool { return waits(w.Process.Pid) })
	}
	if err := os.Rename(above, above+"-moved"); err != nil {
		t.Fatal(err)
	}
	poll(t, "the news", func() bool { return strings.Contains(p.err.String(), "waiting for the store, to lock L: ") })
	r := p.wait()
	r.want(t, 69, "the store does not answer", above)
	if strings.Count(r.err, "waiting for the store") != 1 {
		t.Errorf("told more than once: %s", r.err)
	}
	structured.wait().want(t, 69, `"event":"store_down"`)
}

func TestJitterDelaysTheStart(t *testing.T) {
	s := newShop(t)
	began := time.Now()
	for range 5 {
		s.run("run", "--jitter", "100ms", "L", "--", "true").want(t, 0)
	}
	t.Logf("5 runs with --jitter 100ms took %v", time.Since(began))
	// A delay that nobody waits for is called off by a signal.
	p := s.start("run", "--jitter", "24h", "L", "--", "echo", "ran")
	poll(t, "the signals to be caught", func() bool { return catches(p.Process.Pid, syscall.SIGTSTP) })
	p.signal(syscall.SIGTERM)
	if r := p.wait(); r.code != 143 || r.out != "" {
		t.Errorf("%+v", r)
	}
}

// catches tells whether a process catches a signal. (The Go runtime catches
// most from the start, but not TSTP.)
func catches(pid int, sig syscall.Signal) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), "SigCgt:")
	mask, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	return err == nil && mask&(1<<(sig-1)) != 0
}

func TestSharedHoldersRunTogether(t *testing.T) {
	s := newShop(t)
	s.start("run", "--shared", "L", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	s.run("run", "--shared", "--wait", "0", "L", "--", "true").want(t, 0)
	s.run("run", "--wait", "0", "L", "--", "true").want(t, 75, "shared")
}

func TestSlots(t *testing.T) {
	s := newShop(t)
	for range 2 {
		s.start("run", "--slots", "2", "S", "--", "sh", "-c", "echo up; exec sleep 300").says("up")
	}
	s.run("run", "--slots", "2", "--wait", "0", "S", "--", "true").want(t, 75)
	s.run("run", "--slots", "3", "--wait", "0", "S", "--", "true").want(t, 64, "S is a semaphore of 2 permits, not of 3")
	s.run("run", "--wait", "0", "S", "--", "true").want(t, 64, "S is a semaphore of 2 permits, not a lock")
}

func TestMinHold(t *testing.T) {
	s := newShop(t)
	began := time.Now()
	p := s.start("run", "--min-hold", "1s", "L", "--", "true")
	poll(t, "the hold", func() bool { return s.busy("L") })
	p.wait().want(t, 0)
	if took := time.Since(began); took < time.Second {
		t.Errorf("the name was free after %v", took)
	}
	s.free("L")
	// A signal ends the wait.
	p = s.start("run", "--min-hold", "1h", "L", "--", "echo", "up")
	p.says("up")
	poll(t, "the command's end", func() bool { return child(p.Process.Pid) == 0 })
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 0, "before its --min-hold")
}

// The holder is told when a person breaks its lock, and its command ends
// before the next one begins.
func TestBreakEndsTheCommand(t *testing.T) {
	for policy, want := range map[string]struct {
		code int
		text string
	}{
		"term":        {77, "ending the command"},
		"kill":        {77, "ending the command"},
		"signal:USR1": {77, "the command gets SIGUSR1, and another may run beside it"},
		"continue":    {77, "the command goes on"},
	} {
		t.Run(policy, func(t *testing.T) {
			s := newShop(t)
			p := s.start("run", "--ttl", "1s", "--on-lost", policy, "L", "--", "sh", "-c",
				`trap "echo got TERM; exit 0" TERM; trap "echo got USR1; exit 0" USR1; echo "$HOLDFAST_TOKEN up"; while [ ! -e stop ]; do sleep 0.01; done`)
			p.says("up")
			token := strings.Fields(p.out.String())[0]
			s.run("break", "L", "--token", token, "--reason", "it hangs").want(t, 0)
			poll(t, "the news", func() bool { return strings.Contains(p.err.String(), "it hangs") })
			if policy == "continue" {
				if err := os.WriteFile(p.Dir+"/stop", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := p.wait()
			r.want(t, want.code, fmt.Sprintf("holdfast: the lock was broken by uid %d on ", os.Getuid()), ": it hangs; "+want.text)
			for _, sig := range []string{"TERM", "USR1"} {
				if got := strings.Contains(r.out, "got "+sig); got != strings.Contains(strings.ToUpper(policy), sig) {
					t.Errorf("got %s: %v", sig, got)
				}
			}
			s.free("L")
		})
	}
	s := newShop(t)
	s.run("run", "--ttl", "1s", "--exit-lost", "5", "L", "--", "sh", "-c", binary+` break L --force --token $HOLDFAST_TOKEN --reason x >&2; exec sleep 300`).
		want(t, 5, "two may run")
}
