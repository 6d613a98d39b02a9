package guard

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Conn is the wrapper's end: a guard that was started. One goroutine reads
// with [Conn.Next]; orders may be given from any.
type Conn struct {
	pid   int
	fd    int
	start uint64 // of the guard, in the kernel's ticks
	child int    // the command, once it has started
}

// An Order starts the command.
type Order struct {
	Path  string         // of the program
	Env   []string       // replaces variables of the environment
	Grace time.Duration  // from TERM to KILL
	Lost  syscall.Signal // sent when the deadline's time to act has come; 0 is none
	Locks []*os.File     // kept open until the tree is gone, and not given to the command
}

// ReportKind is what the guard reports.
type ReportKind byte

// The reports. After Gone, or Failed, there are no more.
const (
	Started ReportKind = ReportKind(kindStarted) // Pid
	Failed  ReportKind = ReportKind(kindFailed)  // Err: the command could not be started
	Exited  ReportKind = ReportKind(kindExited)  // Status: the command ended; what it left is being ended
	Stopped ReportKind = ReportKind(kindStopped) // Signal: the command stopped on the terminal
	Expired ReportKind = ReportKind(kindExpired) // the deadline came and was acted on
	Left    ReportKind = ReportKind(kindLeft)    // Names: of what outlived the command
	Stuck   ReportKind = ReportKind(kindStuck)   // Names: of what cannot be killed and is waited for
	Gone    ReportKind = ReportKind(kindGone)    // all are dead and reaped
)

// A Report is one message of the guard.
type Report struct {
	Kind   ReportKind
	Pid    int
	Err    error
	Status syscall.WaitStatus
	Signal syscall.Signal
	Names  string
}

// Start starts a guard for a command, which runs when it is told to. argv is
// the command's, as are env and std, its descriptors 0 to 2. What else is open
// and not close-on-exec the command inherits too.
func Start(argv, env []string, std [3]*os.File) (*Conn, error) {
	// Before the fork, so that the guard's orphans cannot fall to anybody else.
	if err := Subreaper(); err != nil {
		return nil, err
	}
	pair, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(pair[1]) }()
	// The guard's end keeps its number, which the runtime has made sure is not 0, 1 or 2.
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(pair[1]), syscall.F_SETFD, 0); e != 0 {
		return nil, e
	}
	args := append([]string{Arg0, strconv.Itoa(pair[1])}, argv...)
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{std[0].Fd(), std[1].Fd(), std[2].Fd()},
	})
	if err != nil {
		_ = syscall.Close(pair[0])
		return nil, err
	}
	c := &Conn{pid: pid, fd: pair[0]}
	if p, ok := readProcess(pid); ok {
		c.start = p.start
	}
	return c, nil
}

// Run gives the order to start. It keeps no file.
func (c *Conn) Run(o Order) error {
	files := make([]int, len(o.Locks))
	for i, f := range o.Locks {
		files[i] = int(f.Fd())
	}
	if len(files) > maxFiles {
		return errors.New("guard: too many lock files")
	}
	text := strings.Join(append([]string{o.Path}, o.Env...), "\x00")
	return send(c.fd, message{kindStart, [2]int64{int64(o.Grace), int64(o.Lost)}, text}, files...)
}

// Deadline says until when the tree may live: at act it gets the lost signal
// of the order, at kill it is killed. The instants are of [Now]; 0 is never.
// Once one has come, a later one changes nothing any more.
func (c *Conn) Deadline(act, kill int64) {
	c.send(message{kind: kindDeadline, n: [2]int64{act, kill}})
}

// Signal forwards a signal to the command's process group. After TERM the
// grace runs. A guard that somebody has stopped is continued for that.
func (c *Conn) Signal(sig syscall.Signal) {
	c.send(message{kind: kindSignal, n: [2]int64{int64(sig)}})
	c.wake()
}

// End sends a signal, unless it is 0, to the whole tree, and kills it at an
// instant of [Now], or earlier if that was said before. It continues the guard,
// as Signal does.
func (c *Conn) End(sig syscall.Signal, kill int64) {
	c.send(message{kind: kindEnd, n: [2]int64{int64(sig), kill}})
	c.wake()
}

// send need not tell of an error: Next tells that the guard is gone; and where
// so much is unread that no more fits, the guard hangs, which the caller finds
// out by its clock. To wait here could make the caller hang as well.
func (c *Conn) send(m message) { _ = sendNow(c.fd, m) }

func (c *Conn) wake() { _ = syscall.Kill(c.pid, syscall.SIGCONT) }

// Next waits for the next report. ok is false when the guard is gone.
func (c *Conn) Next() (r Report, ok bool) {
	m, _, ok := receive(c.fd, make([]byte, maxMessage))
	if !ok {
		return Report{}, false
	}
	r = Report{Kind: ReportKind(m.kind), Names: m.text}
	switch m.kind {
	case kindStarted:
		r.Pid = int(m.n[0])
		c.child = r.Pid
	case kindFailed:
		r.Err = syscall.Errno(m.n[0]) //nolint:gosec // the guard's, as it was
	case kindExited:
		r.Status = syscall.WaitStatus(m.n[0]) //nolint:gosec // the guard's, as it was
	case kindStopped:
		r.Signal = syscall.Signal(m.n[0])
	default:
	}
	return r, true
}

// Kill ends a guard that has started nothing, or one that does not answer any
// more: then [Conn.TakeOver] has to follow.
func (c *Conn) Kill() { _ = syscall.Kill(c.pid, syscall.SIGKILL) }

// Close reaps the guard, which is at its end or was killed.
func (c *Conn) Close() {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(c.pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	_ = syscall.Close(c.fd)
}

// TakeOver does what a guard that died cannot do any more: it kills and reaps
// all that has fallen to the caller. It returns the command's status, and
// reports what cannot be killed. Close must have come before, and Next have
// ended. Children that the caller had before the guard are left alone.
func (c *Conn) TakeOver(stuck func(names string)) syscall.WaitStatus {
	status := syscall.WaitStatus(syscall.SIGKILL)
	for h := newHunt(os.Getpid(), c.start, syscall.Getpgrp()); ; {
		found := h.sweep(stuck)
		if len(found) == 0 {
			return status
		}
		if c.reap(found, &status) { // what the dead have left is ours now
			h.pause = rescanMin
		}
		<-time.After(time.Duration(h.pause))
	}
}

// reap reaps what is dead of the caller's children, and tells whether any was.
func (c *Conn) reap(ps []process, command *syscall.WaitStatus) (some bool) {
	for _, p := range ps {
		var status syscall.WaitStatus
		if p.parent != os.Getpid() {
			continue
		}
		pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG|waitAnyKind, nil)
		some = some || err == nil && pid == p.pid
		if err == nil && pid == c.child && pid == p.pid {
			*command = status
		}
	}
	return some
}
