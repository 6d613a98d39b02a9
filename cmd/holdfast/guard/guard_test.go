package guard

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary becomes a guard by itself, as the package's init runs in it.

// run is a command under a guard.
type run struct {
	*Conn
	t       *testing.T
	mark    string
	reports chan Report
	seen    []Report
}

// soon bounds what must happen on a machine of any load.
const soon = 30 * time.Second

// start starts a line of sh under a guard. Every process of the tree carries a
// mark in its environment.
func start(t *testing.T, o Order, line string) *run {
	t.Helper()
	argv := []string{"sh", "-c", line}
	conn, err := Start(argv, os.Environ(), [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Conn: conn, t: t, mark: "GUARD_TEST=" + rand.Text(), reports: make(chan Report, 100)}
	o.Path = "/bin/sh"
	o.Env = append(o.Env, r.mark)
	if err := conn.Run(o); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.reports)
		for {
			report, ok := conn.Next()
			if !ok {
				return
			}
			r.reports <- report
		}
	}()
	t.Cleanup(func() {
		conn.Kill()
		for range r.reports {
		}
		conn.Close()
		conn.TakeOver(func(string) {})
	})
	r.until(Started)
	return r
}

// until waits for a report.
func (r *run) until(kind ReportKind) Report {
	r.t.Helper()
	timeout := time.After(soon)
	for {
		select {
		case report, ok := <-r.reports:
			if !ok {
				r.t.Fatalf("the guard ended without report %d; seen %v", kind, r.seen)
			}
			r.seen = append(r.seen, report)
			if report.Kind == kind {
				return report
			}
		case <-timeout:
			r.t.Fatalf("no report %d; seen %v", kind, r.seen)
		}
	}
}

// tree lists the living processes that carry the mark.
func (r *run) tree() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(b), "\x00"), r.mark) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// file is a path that the command writes to.
func file(t *testing.T) (path string, has func(string) func() bool) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	return path, func(text string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(path)
			return bytes.Contains(b, []byte(text))
		}
	}
}

// daemons starts processes that leave their group, their session and their
// parents, and do not mind TERM.
const daemons = `trap "" TERM
(setsid sh -c 'sleep 300 & (setsid sleep 301 &) ; exec sleep 302' & ) ; (sleep 303 &)
`

func TestExitStatusComesThrough(t *testing.T) {
	for _, c := range []struct {
		line string
		want string
	}{
		{"exit 0", "exit 0"},
		{"exit 7", "exit 7"},
		{"exit 255", "exit 255"},
		{"kill -9 $$", "signal 9"},
		{"kill -TERM $$", "signal 15"},
	} {
		r := start(t, Order{}, c.line)
		status := r.until(Exited).Status
		got := fmt.Sprintf("exit %d", status.ExitStatus())
		if status.Signaled() {
			got = fmt.Sprintf("signal %d", status.Signal())
		}
		if got != c.want {
			t.Errorf("%s: %s", c.line, got)
		}
		r.until(Gone)
	}
}

func TestWhatTheCommandLeavesIsEnded(t *testing.T) {
	r := start(t, Order{Grace: 100 * time.Millisecond}, daemons+"exit 3")
	r.until(Exited)
	if left := r.until(Left); !strings.Contains(left.Names, " (pid ") {
		t.Errorf("left: %q", left.Names)
	}
	r.until(Gone)
	if pids := r.tree(); len(pids) > 0 {
		t.Errorf("alive after Gone: %v", pids)
	}
}

func TestTheEndOfTheWrapperKillsTheTree(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{Grace: time.Hour}, daemons+"echo up > "+path+"; sleep 300")
	poll(t, "the command", has("up"))
	_ = syscall.Shutdown(r.fd, syscall.SHUT_RDWR)
	poll(t, "the tree's end", func() bool { return len(r.tree()) == 0 })
}

func TestDeadlineEndsTheTreeByItself(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{Grace: time.Hour, Lost: syscall.SIGTERM}, "trap 'echo got TERM >> "+path+"' TERM; echo up > "+path+"; while :; do sleep 0.01; done")
	poll(t, "the command", has("up"))
	act := Now() + int64(50*time.Millisecond)
	end := act + int64(300*time.Millisecond)
	r.Deadline(act, end)
	r.until(Expired)
	if now := Now(); now < act {
		t.Errorf("expired %v early", time.Duration(act-now))
	}
	poll(t, "the signal", has("got TERM"))
	r.Deadline(0, 0) // too late a renewal
	if status := r.until(Exited).Status; status.Signal() != syscall.SIGKILL {
		t.Errorf("status %v", status)
	}
	if now := Now(); now < end {
		t.Errorf("killed %v early", time.Duration(end-now))
	}
	r.until(Gone)
}

func TestRenewalMovesTheDeadline(t *testing.T) {
	r := start(t, Order{Lost: syscall.SIGTERM}, "sleep 2.2; exit 5")
	soonest := Now() + int64(2*time.Second)
	r.Deadline(soonest, soonest)
	r.Deadline(soonest+int64(time.Hour), soonest+int64(time.Hour))
	if status := r.until(Exited).Status; status.ExitStatus() != 5 {
		t.Errorf("status %v", status)
	}
	r.until(Gone)
	for _, report := range r.seen {
		if report.Kind == Expired {
			t.Error("expired")
		}
	}
}

func TestLostSignalWithoutKill(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{Lost: syscall.SIGUSR1}, "trap 'exit 9' USR1; echo up > "+path+"; while :; do sleep 0.01; done")
	poll(t, "the command", has("up"))
	r.Deadline(Now(), 0)
	if status := r.until(Exited).Status; status.ExitStatus() != 9 {
		t.Errorf("status %v", status)
	}
	r.until(Gone)
}

func TestGraceAfterTerm(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{Grace: 200 * time.Millisecond}, daemons+"echo up > "+path+"; while :; do sleep 0.01; done")
	poll(t, "the command", has("up"))
	sent := Now()
	r.Signal(syscall.SIGTERM)
	if status := r.until(Exited).Status; status.Signal() != syscall.SIGKILL {
		t.Errorf("status %v", status)
	}
	if took := time.Duration(Now() - sent); took < 200*time.Millisecond {
		t.Errorf("killed after %v", took)
	}
	r.until(Gone)
	if pids := r.tree(); len(pids) > 0 {
		t.Errorf("alive after Gone: %v", pids)
	}
}

// A forking tree may not outrun the kill.
func TestKillOutrunsForks(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{}, `f() { while :; do (sleep 0.01 &); done; }; f & f & echo up > `+path+`; sleep 300`)
	poll(t, "the command", has("up"))
	r.End(0, Now())
	r.until(Gone)
	if pids := r.tree(); len(pids) > 0 {
		t.Errorf("alive after Gone: %v", pids)
	}
}

func TestWrapperTakesOverFromADeadGuard(t *testing.T) {
	before := exec.CommandContext(t.Context(), "sleep", "300") // a child that is none of the guard's business
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Process.Kill() }()
	tick := func() uint64 { p, _ := readProcess(before.Process.Pid); return p.start }()
	poll(t, "a tick", func() bool { return Now()/1e7 > int64(tick)+1 }) //nolint:gosec // ticks since boot

	path, has := file(t)
	r := start(t, Order{}, daemons+"echo up > "+path+"; while :; do sleep 0.01; done")
	poll(t, "the command", has("up"))
	r.Kill()
	for range r.reports {
	}
	r.Close()
	if status := r.TakeOver(func(names string) { t.Errorf("stuck: %s", names) }); status.Signal() != syscall.SIGKILL {
		t.Errorf("status %v", status)
	}
	if pids := r.tree(); len(pids) > 0 {
		t.Errorf("alive: %v", pids)
	}
	if p, ok := readProcess(before.Process.Pid); !ok || p.state == 'Z' {
		t.Error("a process that was there before is dead")
	}
}
