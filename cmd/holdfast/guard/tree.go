package guard

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

// start starts the command in a process group of its own. fields are the path
// of the program and what replaces variables of the environment.
func (g *guard) start(fields []string) bool {
	attr := &syscall.ProcAttr{
		Env:   environment(os.Environ(), fields[1:]),
		Files: []uintptr{0, 1, 2},
		// If we and the wrapper are killed together, at least the command itself dies.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	// In a pipeline the others of the wrapper's group need the terminal too:
	// then the command gets it when it asks (see suspended).
	if g.ownsTerminal() && isTerminal(0) && isTerminal(1) {
		attr.Sys.Foreground, attr.Sys.Ctty = true, int(g.tty)
	}
	pid, err := syscall.ForkExec(fields[0], g.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without a first line, as the shell treats it
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", fields[0]}, g.argv[1:]...), attr)
	}
	if err != nil {
		g.restoreTerminal()
		code := syscall.EINVAL
		errors.As(err, &code)
		g.tell(message{kind: kindFailed, n: [2]int64{int64(code)}})
		return false
	}
	g.child, g.running = pid, true
	g.tell(message{kind: kindStarted, n: [2]int64{int64(pid)}})
	return true
}

// environment replaces variables.
func environment(env, vars []string) []string {
	out := make([]string, 0, len(env)+len(vars))
next:
	for _, e := range env {
		for _, v := range vars {
			if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(e, name+"=") {
				continue next
			}
		}
		out = append(out, e)
	}
	return append(out, vars...)
}

// death is what wait4 told of one child.
type death struct {
	pid    int
	status syscall.WaitStatus
}

// deaths are all that could be told at once.
type deaths struct {
	all  []death
	last bool // no child is left
}

// reap reaps until no child is left. As orphans become our children, and we
// fork no more, none can come after that.
func reap(out chan<- deaths) {
	defer close(out)
	for {
		var d deaths
		for flags := waitStoppedAsWell | waitAnyKind; ; flags |= syscall.WNOHANG {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, flags, nil)
			if err == syscall.EINTR {
				flags &^= syscall.WNOHANG
				continue
			}
			if d.last = err != nil; d.last || pid == 0 {
				break
			}
			d.all = append(d.all, death{pid, status})
		}
		if len(d.all) > 0 {
			out <- d
		}
		if d.last {
			return
		}
	}
}

func (g *guard) mourn(d deaths) {
	for _, one := range d.all {
		switch {
		case one.pid != g.child:
		case one.status.Stopped():
			g.suspended(one.status.StopSignal())
		default:
			g.running = false
			g.restoreTerminal()
			g.tell(message{kind: kindExited, n: [2]int64{int64(one.status)}})
			if !d.last && g.hunt == nil {
				g.endRest()
			}
		}
	}
	if g.hunt != nil { // what the dead have left is ours now, and easier to find than later
		g.hunt.pause = rescanMin
		g.rescanAt = earlier(g.rescanAt, Now()+rescanMin)
	}
}

// suspended: the command stopped. If it only wanted the terminal that the
// wrapper's group has, it gets it; else the wrapper's job stops with it.
func (g *guard) suspended(sig syscall.Signal) {
	if g.tty < 0 || sig == syscall.SIGSTOP {
		return
	}
	if sig != syscall.SIGTSTP && g.ownsTerminal() {
		g.tty.SetForeground(g.child)
		_ = syscall.Kill(-g.child, syscall.SIGCONT)
		return
	}
	g.restoreTerminal()
	g.tell(message{kind: kindStopped, n: [2]int64{int64(sig)}})
}

// endRest ends what the command left behind.
func (g *guard) endRest() {
	left := alive(descendants(os.Getpid()))
	if len(left) == 0 {
		return
	}
	g.tell(message{kind: kindLeft, text: names(left)})
	signalAll(left, syscall.SIGTERM, syscall.SIGCONT)
	g.endAt = earlier(g.endAt, Now()+g.grace)
}

// forward passes a signal on to the command's group.
func (g *guard) forward(sig syscall.Signal) {
	if !g.running {
		return
	}
	if sig == syscall.SIGCONT && g.ownsTerminal() && isTerminal(0) && isTerminal(1) {
		g.tty.SetForeground(g.child)
	}
	_ = syscall.Kill(-g.child, sig)
	if sig == syscall.SIGTERM {
		g.endAt = earlier(g.endAt, Now()+g.grace)
	}
}

// end sends a signal to the whole tree, and kills it at an instant.
func (g *guard) end(sig syscall.Signal, at int64) {
	if g.child == 0 {
		return
	}
	if sig != 0 {
		signalAll(alive(descendants(os.Getpid())), sig, syscall.SIGCONT)
	}
	g.endAt = earlier(g.endAt, at)
}

// expire: the lease was not renewed in time. Where a kill is to follow, the
// signal goes to the whole tree, else to the command's group.
func (g *guard) expire() {
	due := g.actAt
	g.expired, g.actAt = true, 0
	g.tell(message{kind: kindExpired})
	switch {
	case due == 0 || g.lost == 0:
	case g.killAt != 0:
		g.end(g.lost, g.killAt)
	default:
		g.forward(g.lost)
	}
}

// kill begins to kill the tree, which goes on until all are gone.
func (g *guard) kill() {
	if g.hunt != nil {
		return
	}
	g.hunt = newHunt(os.Getpid(), 0, g.home)
	g.actAt, g.killAt, g.endAt = 0, 0, 0
	if g.running {
		_ = syscall.Kill(-g.child, syscall.SIGKILL)
	}
	g.sweep()
}

// sweep kills what is there now, and names what cannot be killed.
func (g *guard) sweep() {
	g.hunt.sweep(func(names string) {
		g.tell(message{kind: kindStuck, text: names})
		if g.deaf {
			g.shout("cannot kill " + names + "; the lock stays taken until it ends, where the store allows that")
		}
	})
	g.rescanAt = Now() + g.hunt.pause
}

// ownsTerminal tells whether the wrapper's group is in the foreground.
func (g *guard) ownsTerminal() bool { return g.tty >= 0 && g.tty.Foreground() == g.home }

// restoreTerminal gives the terminal back to the wrapper's group, unless a
// shell has given it to somebody else meanwhile.
func (g *guard) restoreTerminal() {
	if g.tty < 0 {
		return
	}
	group := g.tty.Foreground()
	if group == g.child || group > 0 && syscall.Kill(-group, 0) == syscall.ESRCH {
		g.tty.SetForeground(g.home)
	}
}
