package cli

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/guard"
)

// supervisor is the wrapper while the command runs: it tells the guard what
// the lease, the signals and the clock ask for, and people what happens. One
// goroutine owns it.
type supervisor struct {
	a       *app
	o       *runOptions
	conn    *guard.Conn
	held    *held
	signals *signals
	prog    program
	words   *teller

	reports chan guard.Report
	maxRun  *time.Timer // nil if the command may run for ever
	overdue *time.Timer // nil unless the guard should be done by then
	dueAt   time.Time   // when overdue fires
	stuck   bool        // the guard waits for what it cannot kill: it is never overdue

	asked   bool           // TERM or INT came: the next one kills
	endedBy syscall.Signal // the last other signal that may have been meant to end the command; 0: none
	lost    bool
	capped  bool // by --max-run
	failed  int  // exit status of a command that could not be started
	status  syscall.WaitStatus
}

// patience is how much longer than told the guard may take to kill the tree
// before it counts as hung.
const patience = 2 * time.Second

// supervise runs the command to its end and returns the exit status. When it
// returns, the whole tree is dead and reaped.
func (s *supervisor) supervise() int {
	s.words = newTeller(s.a)
	defer s.words.end(s.a)
	s.tellDeadline()
	order := guard.Order{Path: s.prog.path, Env: s.held.env, Grace: s.o.grace, Lost: s.o.onLost.signal, Locks: s.held.locks}
	if err := s.conn.Run(order); err != nil {
		s.conn.Kill() // it has started nothing
	}
	// The guard has its own copies now. Ours would not hurt, but one day a
	// release may be a close.
	s.held.closeLocks()
	s.reports = make(chan guard.Report, 16)
	go s.listen()
	for s.step() {
	}
	return s.exit()
}

func (s *supervisor) listen() {
	defer close(s.reports)
	for {
		r, ok := s.conn.Next()
		if !ok {
			return
		}
		s.reports <- r
	}
}

// step handles the next thing that happens; false when the tree is gone.
func (s *supervisor) step() bool {
	var lostC <-chan struct{}
	if s.held.lease != nil && !s.lost {
		lostC = s.held.lease.Context().Done()
	}
	select {
	case r, ok := <-s.reports:
		if !ok {
			s.takeOver()
			return false
		}
		return s.hear(&r)
	case sig := <-s.signals.ch:
		if n, ok := sig.(syscall.Signal); ok {
			s.pass(n)
		}
	case <-s.held.renews:
		s.tellDeadline()
	case <-lostC:
		s.lose(context.Cause(s.held.lease.Context()))
	case <-after(s.maxRun):
		s.capped, s.maxRun = true, nil
		s.end(syscall.SIGTERM, s.o.grace)
		s.words.say("max-run", "the command ran for "+human(s.o.maxRun)+": ending it")
	case <-after(s.overdue):
		s.overdue = nil
		s.conn.Kill()
		s.words.report("guard", "the guard does not answer", nil)
	}
	return true
}

func after(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

// hear handles a report of the guard; false when the tree is gone.
func (s *supervisor) hear(r *guard.Report) bool {
	switch r.Kind {
	case guard.Started:
		if s.o.maxRun != 0 {
			s.maxRun = time.NewTimer(s.o.maxRun)
		}
	case guard.Failed:
		code, why := startFailure(r.Err)
		if code == exitNotFound && executable(s.prog.path) == nil {
			why = deadScript(s.prog.path)
		}
		s.failed = code
		s.words.report("error", printable(s.o.argv[0])+": "+why, map[string]any{"exit": code})
		s.conn.Close()
		return false
	case guard.Exited:
		s.status, s.maxRun = r.Status, nil
	case guard.Expired:
		s.markLost("the lock was lost: not renewed in time") // the words of the library, which may be first
	case guard.Left:
		s.words.say("left", "ending what the command left behind: "+r.Names)
	case guard.Stuck:
		s.tellStuck(r.Names)
	case guard.Stopped:
		suspend(r.Signal)
		s.conn.Signal(syscall.SIGCONT)
	case guard.Gone:
		s.conn.Close()
		return false
	}
	return true
}

func (s *supervisor) tellStuck(names string) {
	s.overdue, s.stuck = nil, true
	s.words.report("stuck", "cannot kill "+names+"; the lock is not released before it ends", map[string]any{"processes": names})
}

// pass forwards a signal. After TERM the tree has to be gone in time; a second
// TERM or INT kills.
func (s *supervisor) pass(sig syscall.Signal) {
	if sig == syscall.SIGTERM || sig == syscall.SIGINT {
		if s.asked {
			s.end(0, 0)
			return
		}
		s.asked = true
	}
	if dying(sig) {
		s.endedBy = sig
	}
	s.conn.Signal(sig)
	if sig == syscall.SIGTERM {
		s.expectEnd(s.o.grace)
	}
}

// end has the tree killed after a grace, which a signal begins.
func (s *supervisor) end(sig syscall.Signal, grace time.Duration) {
	s.conn.End(sig, guard.Now()+int64(grace))
	s.expectEnd(grace)
}

// expectEnd has us do the guard's work if the tree is not gone soon after the
// grace: the guard is stopped then, or hangs.
func (s *supervisor) expectEnd(grace time.Duration) {
	at := time.Now().Add(grace + patience)
	if s.stuck || s.overdue != nil && s.dueAt.Before(at) {
		return
	}
	s.overdue, s.dueAt = time.NewTimer(grace+patience), at
}

// lose: the lease is over while the command runs. By its deadline the guard
// has acted already; a store may tell a loss, or a person break, sooner.
func (s *supervisor) lose(cause error) {
	reason, who := lossReason(cause)
	text := "the lock was lost"
	if errors.Is(cause, holdfast.ErrBroken) {
		text = "the lock was broken by " + printable(cmp.Or(who, "a person"))
	}
	if reason != "" {
		text += ": " + printable(reason)
	}
	switch {
	case s.o.onLost.kill && s.o.onLost.signal == 0:
		s.end(0, 0)
	case s.o.onLost.kill:
		s.end(s.o.onLost.signal, s.lossGrace())
	case s.o.onLost.signal != 0:
		s.conn.Signal(s.o.onLost.signal)
	}
	s.markLost(text)
}

// markLost tells a loss once.
func (s *supervisor) markLost(text string) {
	if s.lost {
		return
	}
	s.lost = true
	switch {
	case s.o.onLost.kill:
		text += "; ending the command"
	case s.o.onLost.signal != 0:
		text += "; the command gets SIG" + signalName(s.o.onLost.signal) + ", and another may run beside it"
	default:
		text += "; the command goes on, and another may run beside it"
	}
	s.words.report("lost", text, map[string]any{"name": s.o.name})
}

// lossGrace is what the command gets of a lease that is over early.
func (s *supervisor) lossGrace() time.Duration { return min(s.o.grace, s.o.lock.lease()/3) }

// tellDeadline tells the guard until when the lease may be trusted.
func (s *supervisor) tellDeadline() {
	left, ok := s.held.until()
	if !ok || s.lost {
		return
	}
	now := guard.Now()
	at := func(d time.Duration) int64 {
		if d == never {
			return 0
		}
		return max(1, now+int64(d))
	}
	act, kill := s.o.onLost.due(left, s.o.lock.lease(), s.o.grace)
	s.conn.Deadline(at(act), at(kill))
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// due tells when a command gets its signal and when it is killed, if the
// lease runs for left yet. Killing and reaping take a moment, which is taken
// off; and the grace leaves half of what follows the next renewal, which comes
// after a third of the TTL, to renewals that come late.
func (p lossPolicy) due(left, ttl, grace time.Duration) (act, kill time.Duration) {
	end := left - min(max(ttl/20, 20*time.Millisecond), 500*time.Millisecond)
	early := end - min(grace, max(0, (end-ttl/3)/2))
	switch {
	case p.kill && p.signal == 0:
		return never, early
	case p.kill:
		return early, end
	case p.signal != 0:
		return early, never
	}
	return never, never
}

// takeOver does the guard's work after it was killed.
func (s *supervisor) takeOver() {
	s.words.report("guard", "the guard process died: killing the command", nil)
	s.conn.Close()
	s.status = s.conn.TakeOver(s.tellStuck)
	if tty, ok := guard.OpenTerminal(); ok {
		if group := tty.Foreground(); group > 0 && syscall.Kill(-group, 0) != nil {
			tty.SetForeground(syscall.Getpgrp())
		}
		_ = os.NewFile(uintptr(tty), "tty").Close()
	}
}

// exit is the exit status: a loss and the time limit go before the command's.
func (s *supervisor) exit() int {
	if s.held.lease != nil && s.failed == 0 && !s.held.lease.Valid() {
		s.markLost("the lock was lost")
	}
	switch {
	case s.failed != 0:
		return s.failed
	case s.lost && s.o.exitLost != 0:
		return s.o.exitLost
	case s.lost:
		return exitLost
	case s.capped:
		return exitMaxRun
	case s.status.Signaled():
		return exitSignal + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}
