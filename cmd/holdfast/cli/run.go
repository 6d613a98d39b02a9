package cli

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/guard"
)

// The defaults of holdfast run and cron.
const (
	defaultGrace = 10 * time.Second
	cronMinHold  = 60 * time.Second
	maxLocks     = 1 << 20
)

// runOptions are what holdfast run was asked to do.
type runOptions struct {
	common
	lock lockOptions
	name string
	argv []string

	skipBusy           bool
	exitBusy, exitLost int // 0: as documented
	onLost             lossPolicy
	grace              time.Duration
	maxRun, jitter     time.Duration
	shell              bool

	cron, oneHost bool
	elect         bool
	value         string // of a leader
}

// lossPolicy is what becomes of the command when the lock is lost.
type lossPolicy struct {
	signal syscall.Signal // sent to it; 0 is none
	kill   bool           // and the tree is dead before the deadline
}

var (
	lossTerm = lossPolicy{syscall.SIGTERM, true}
	lossKill = lossPolicy{0, true}
)

func (a *app) runMain(args []string) int {
	o := &runOptions{onLost: lossTerm, grace: defaultGrace}
	return a.parsed(o, args)
}

func (a *app) cronMain(args []string) int {
	o := &runOptions{onLost: lossTerm, grace: defaultGrace, cron: true, skipBusy: true}
	o.lock.try, o.lock.minHold = true, cronMinHold
	return a.parsed(o, args)
}

func (a *app) parsed(o *runOptions, args []string) int {
	f := a.newFlags()
	o.define(f)
	before, command, dashed := cutDashes(args)
	rest, done := f.parse(before)
	if done {
		return exitOK
	}
	if len(rest) == 0 && len(command) > 2 && command[1] == "--" { // a name that looks like a flag
		rest, command = command[:1], command[2:]
	}
	o.argv = command
	o.arguments(f, rest, dashed)
	o.validate(f)
	if f.failed() {
		return exitUsage
	}
	return a.run(o)
}

func (o *runOptions) define(f *flags) {
	if o.elect {
		o.defineElect(f)
		return
	}
	f.common(&o.common)
	o.lock.define(f)
	f.value("on-busy", "`fail|skip`: what to do if the name is held, or the wait runs out; skip exits with 0; default "+o.onBusy(), func(s string) error {
		o.skipBusy = s == "skip"
		if s != "skip" && s != "fail" {
			return errors.New("must be fail or skip")
		}
		return nil
	})
	f.value("on-lost", "`term|kill|continue|signal:NAME`: what to do with the command when the lock is lost; default term", func(s string) (err error) {
		o.onLost, err = parseLossPolicy(s)
		return err
	})
	f.span(&o.grace, "grace", "`time` from TERM to KILL; default 10s")
	f.duration(&o.lock.minHold, "min-hold", 0, "keep the name taken for so much `time` after the grant, 24h at most; default "+human(o.lock.minHold))
	f.span(&o.maxRun, "max-run", "end the command after this `time`, with exit status 124; default 0: never")
	f.span(&o.jitter, "jitter", "first wait a random part of this `time`")
	f.integer(&o.exitBusy, "exit-busy", 255, "exit `status` instead of 75 and 76")
	f.integer(&o.exitLost, "exit-lost", 255, "exit `status` instead of 77")
	f.BoolVar(&o.shell, "shell", false, "run COMMAND as a line of sh")
	if o.cron {
		f.BoolVar(&o.oneHost, "one-host", false, "the job is started on this host only, so the file store will do")
	}
}

func (o *runOptions) onBusy() string {
	if o.skipBusy {
		return "skip"
	}
	return "fail"
}

// cutDashes parts the arguments at the first "--".
func cutDashes(args []string) (before, command []string, dashed bool) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:], true
	}
	return args, nil, false
}

// arguments takes NAME -- COMMAND.
func (o *runOptions) arguments(f *flags, rest []string, dashed bool) {
	if !dashed && len(rest) > 1 && !f.unknown {
		f.problem("put -- between the name and the command: holdfast %s %s -- %s", f.a.command, rest[0], strings.Join(rest[1:], " "))
		rest = rest[:1]
	} else if len(o.argv) == 0 {
		f.problem("the command is missing: NAME -- COMMAND [ARG...]")
	}
	if len(o.argv) > 0 && o.argv[0] == "" {
		f.problem("the command is empty")
	}
	o.name = f.name(rest)
}

func (o *runOptions) validate(f *flags) {
	o.lock.validate(f)
	o.reachable(f)
	if o.cron && !o.oneHost {
		if at, err := o.place(); err == nil && at.oneHost() {
			f.problem("the file store excludes only this host: name a shared --store, or say --one-host if only this host starts the job")
		}
	}
	if o.maxRun != 0 && o.lock.minHold > o.maxRun+o.grace && !o.cron {
		f.problem("--min-hold %s is over --max-run %s and --grace %s", human(o.lock.minHold), human(o.maxRun), human(o.grace))
	}
}

func parseLossPolicy(s string) (lossPolicy, error) {
	switch s {
	case "term":
		return lossTerm, nil
	case "kill":
		return lossKill, nil
	case "continue":
		return lossPolicy{}, nil
	}
	name, ok := strings.CutPrefix(s, "signal:")
	sig, known := signalNames[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
	if !ok || !known {
		return lossTerm, errors.New("must be term, kill, continue or signal:NAME with a name such as USR1")
	}
	return lossPolicy{signal: sig}, nil
}

var signalNames = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH, "CONT": syscall.SIGCONT,
	"STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP, "ALRM": syscall.SIGALRM, "URG": syscall.SIGURG, "ABRT": syscall.SIGABRT,
}

// signalName is a signal as kill -l lists it.
func signalName(sig syscall.Signal) string {
	for name, n := range signalNames {
		if n == sig {
			return name
		}
	}
	return sig.String()
}

// run takes the lock, runs the command, and gives the lock back.
func (a *app) run(o *runOptions) int {
	prog, code, why := a.lookUp(o.argv, o.shell)
	if code != 0 {
		a.report("error", why, map[string]any{"exit": code})
		return code
	}
	if o.lock.label == "" {
		o.lock.label = ownLabel(o.argv[0])
	}
	signals := catchSignals()
	defer signals.stop()
	if code = a.delay(o.jitter, signals); code != 0 {
		return code
	}
	parent, err := a.enclosing(o)
	if err != nil {
		return a.fail(err)
	}
	if o.elect && parent == nil {
		return a.elect(o, prog, signals)
	}
	// The guard starts while the store answers.
	started := a.startGuard(prog)
	held, err := a.take(o, parent, signals)
	g := <-started
	if err == nil && g.err != nil {
		held.giveBack(o, signals)
		a.report("error", "the guard cannot be started: "+g.err.Error(), map[string]any{"exit": exitInternal})
		return exitInternal
	}
	if err != nil {
		if g.err == nil {
			g.conn.Kill()
			g.conn.Close()
		}
		return a.refused(o, err)
	}
	s := &supervisor{a: a, o: o, conn: g.conn, held: held, signals: signals, prog: prog}
	code = s.supervise()
	held.giveBack(o, signals)
	return code
}

// startedGuard is a guard, or why there is none.
type startedGuard struct {
	conn *guard.Conn
	err  error
}

func (a *app) startGuard(p program) <-chan startedGuard {
	started := make(chan startedGuard, 1)
	go func() {
		conn, err := guard.Start(p.argv, a.environ, [3]*os.File{a.stdin, a.stdout, a.stderr})
		started <- startedGuard{conn, err}
	}()
	return started
}

// delay waits a random part of d, so that hosts that start a job at the same
// second do not ask at the same moment.
func (a *app) delay(d time.Duration, signals *signals) int {
	if d == 0 {
		return 0
	}
	ctx, done := signals.context()
	defer done()
	timer := time.NewTimer(rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0
	case <-ctx.Done():
		return a.interrupted(ctx, " in the --jitter before the start")
	}
}
