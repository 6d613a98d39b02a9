package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemons starts processes that leave their group, their session and their
// parents, and do not mind TERM.
const daemons = `trap "" TERM HUP
(setsid sh -c 'sleep 300 & (setsid sleep 301 &) ; exec sleep 302' & ) ; (sleep 303 &)
`

// successor waits for the name L, and fails if it gets it while a process of the
// holder lives. The holder's processes carry the shop's mark; it does not.
func (s *shop) successor() *process {
	s.t.Helper()
	cmd := s.command("run", "L", "--", "sh", "-c", "grep -lz '"+s.mark+"' /proc/[0-9]*/environ 2>/dev/null; exit 0")
	cmd.Env = cmd.Env[:2]
	p := s.launch(cmd)
	poll(s.t, "the waiter", func() bool { return p.err.String() != "" || waits(p.Process.Pid) })
	return p
}

// waits tells whether a process has started its guard, so that it is asking
// the store.
func waits(pid int) bool { return child(pid) != 0 }

// checkSuccessor checks what the successor saw. The wrapper may be there: it
// releases before it exits.
func (s *shop) checkSuccessor(p *process, wrapper int) {
	s.t.Helper()
	r := p.wait()
	if r.code != 0 {
		s.t.Errorf("the next holder: %+v", r)
	}
	for f := range strings.FieldsSeq(r.out) {
		if f != fmt.Sprintf("/proc/%d/environ", wrapper) {
			s.t.Errorf("the next holder got in while %s was alive", f)
		}
	}
}

// B101: what the command leaves behind neither keeps the lock nor lives on.
func TestDaemonDoesNotKeepTheLock(t *testing.T) {
	s := newShop(t)
	r := s.run("run", "L", "--", "sh", "-c", "sleep 60 & exit 0")
	r.want(t, 0, "ending what the command left behind: ")
	s.noneLeft()
	s.free("L")
}

// B101: no descriptor of the lock is the command's.
func TestCommandHasNoLockFile(t *testing.T) {
	s := newShop(t)
	for _, name := range []string{"L", "S"} {
		args := []string{"run", name, "--", "sh", "-c", "ls -l /proc/$$/fd; ls -l /proc/self/fd"}
		if name == "S" {
			args = append([]string{"run", "--slots", "3"}, args[1:]...)
		}
		r := s.run(args...)
		if r.code != 0 || strings.Contains(r.out, s.dir) || strings.Contains(r.out, "socket:") {
			t.Errorf("%+v", r)
		}
	}
}

// B102: TERM goes to the command's group; its status comes through; nothing is
// left.
func TestTermIsForwarded(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", `trap "sleep 0.3; exit 7" TERM; echo up; sleep 60 & wait`)
	p.says("up")
	next := s.successor()
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 7)
	s.noneLeft()
	s.checkSuccessor(next, p.Process.Pid)
	s.free("L")
}

// B107: after --grace the command that does not mind TERM is killed.
func TestGraceEndsInKill(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "--grace", "500ms", "L", "--", "sh", "-c", daemons+"echo up; sleep 60")
	p.says("up")
	next := s.successor()
	sent := time.Now()
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 137)
	if took := time.Since(sent); took < 500*time.Millisecond {
		t.Errorf("killed after %v", took)
	}
	s.noneLeft()
	s.checkSuccessor(next, p.Process.Pid)
	s.free("L")
}

// B107: a second signal kills at once.
func TestSecondSignalKills(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "--grace", "1h", "L", "--", "sh", "-c", `trap "echo one" TERM INT; echo up; while :; do sleep 0.01; done`)
	p.says("up")
	p.signal(syscall.SIGTERM)
	p.says("one")
	p.signal(syscall.SIGINT)
	p.wait().want(t, 137)
	s.noneLeft()
}

func TestSignalsAreForwarded(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", `for n in HUP QUIT USR1 USR2 WINCH INT; do trap "echo got $n" $n; done; echo up; while :; do sleep 0.01; done`)
	p.says("up")
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
		"WINCH": syscall.SIGWINCH, "INT": syscall.SIGINT,
	} {
		p.signal(sig)
		p.says("got " + name)
	}
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 137) // the second of INT and TERM
}

// B108: at the time limit the whole tree ends, with a status of its own.
func TestMaxRun(t *testing.T) {
	s := newShop(t)
	r := s.run("run", "--max-run", "300ms", "L", "--", "sh", "-c", "sleep 60; echo late")
	r.want(t, 124, "the command ran for 300ms")
	if strings.Contains(r.out, "late") {
		t.Error("late was printed")
	}
	s.noneLeft()
	r = s.run("run", "--max-run", "300ms", "--grace", "200ms", "L", "--", "sh", "-c", daemons+"sleep 60; echo late")
	r.want(t, 124)
	if strings.Contains(r.out, "late") {
		t.Error("late was printed")
	}
	s.noneLeft()
	s.free("L")
}

// B077: when the wrapper is killed with -9 its tree dies, and the lock stays
// taken until it has.
func TestKilledWrapper(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", daemons+"echo up; sleep 60")
	p.says("up")
	next := s.successor()
	p.signal(syscall.SIGKILL)
	s.checkSuccessor(next, 0)
	poll(t, "the tree's end", func() bool { return len(s.alive()) == 0 })
	p.wait()
}

// B077: also if the command is killed together with it.
func TestKilledWrapperAndCommand(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "--ttl", "2s", "L", "--", "sh", "-c", "echo up; exec sleep 60")
	p.says("up")
	_, command := p.guardOf()
	next := s.successor()
	p.signal(syscall.SIGKILL)
	_ = syscall.Kill(command, syscall.SIGKILL)
	s.checkSuccessor(next, 0)
	s.noneLeft()
}

func TestKilledGuard(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", daemons+"echo up; sleep 60")
	p.says("up")
	guard, _ := p.guardOf()
	next := s.successor()
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait().want(t, 137, "the guard process died")
	s.checkSuccessor(next, p.Process.Pid)
	s.noneLeft()
}

// A service manager sends TERM to all that it started; so does a person who
// kills by name.
func TestTermToAllProcesses(t *testing.T) {
	s := newShop(t)
	p := s.start("run", "L", "--", "sh", "-c", `trap "sleep 0.1; exit 5" TERM; echo up; while :; do sleep 0.01; done`)
	p.says("up")
	guard, command := p.guardOf()
	for _, pid := range []int{guard, command, p.Process.Pid} {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	p.wait().want(t, 5)
	s.noneLeft()
}

// On a lease store the guard ends the tree by the deadline, though the wrapper
// cannot.
func TestStoppedWrapper(t *testing.T) {
	s := newShop(t)
	cmd := s.command("run", "--store", "lease://", "--ttl", "2s", "L", "--", "sh", "-c", daemons+"echo up; sleep 60")
	cmd.Path = leases
	p := s.launch(cmd)
	p.says("up")
	guard, _ := p.guardOf()
	stopped := time.Now()
	p.signal(syscall.SIGSTOP)
	poll(t, "the tree's end", func() bool {
		left := s.alive()
		return len(left) == 1 && left[0] == p.Process.Pid || len(left) == 2 && zombie(guard)
	})
	t.Logf("dead %v after the stop; the lease had 2 s at most", time.Since(stopped))
	p.signal(syscall.SIGCONT)
	p.wait().want(t, 77, "the lock was lost: not renewed in time")
	s.noneLeft()
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ")
}

// The guard is up before the rest of the program is.
func TestGuardStartsBeforeTheStores(t *testing.T) {
	s := newShop(t)
	cmd := s.command("run", "L", "--", "true")
	cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	r := s.launch(cmd).wait()
	inits := func(pkg string) int { return strings.Count(r.err, "init "+pkg+" @") }
	if r.code != 0 || inits("runtime") != 2 {
		t.Fatalf("no traces of two processes: %+v", r)
	}
	for _, pkg := range []string{"net/netip", "log/slog", "github.com/holdfast-go/holdfast"} {
		if n := inits(pkg); n != 1 {
			t.Errorf("%s is initialised %d times: by the guard too", pkg, n)
		}
	}
}
