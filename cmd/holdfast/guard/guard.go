package guard

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Arg0 is the guard's argv[0]; argv[1] is the number of its socket, and what
// follows is the command's argv.
const Arg0 = "holdfast-guard"

func init() {
	if len(os.Args) > 2 && os.Args[0] == Arg0 {
		serve(os.Args[1], os.Args[2:])
	}
}

// guard is the state of the guard's process, owned by one goroutine.
type guard struct {
	conn int
	argv []string
	tty  Terminal // -1 if there is none
	home int      // the wrapper's process group

	child   int  // pid and process group of the command; 0 before the start
	running bool // the command itself was not reaped yet
	locks   []int
	grace   int64
	lost    syscall.Signal // sent at actAt

	actAt, killAt int64 // by the lease's deadline; 0 is never
	endAt         int64 // when to kill by an order, or what was left; 0 is never
	expired       bool  // the deadline was acted on; no renewal undoes that

	hunt     *hunt // nil until the tree is to be killed
	rescanAt int64
	deaf     bool        // the wrapper is dead
	shouts   chan string // for stderr, once it is
}

// serve is the life of the guard. It does not return.
func serve(socket string, argv []string) {
	conn, err := strconv.Atoi(socket)
	if err != nil {
		say("holdfast-guard is started by holdfast run only")
		syscall.Exit(64)
	}
	syscall.CloseOnExec(conn)
	setName(Arg0)
	ignoreSignals()
	// The command dies with the thread that starts it, which therefore has to
	// live as long as we do. This one is the first thread, and does.
	runtime.LockOSThread()
	g := &guard{conn: conn, argv: argv, tty: -1, home: syscall.Getpgrp(), shouts: make(chan string, 4)}
	if err := Subreaper(); err != nil {
		say("prctl: " + err.Error())
		syscall.Exit(70)
	}
	g.leaveGroup()
	g.loop()
	syscall.Exit(0)
}

// leaveGroup gets the guard out of the way of what is sent to the wrapper's
// process group. Where there is a terminal it has to stay in its session: the
// command could not be in the foreground otherwise.
func (g *guard) leaveGroup() {
	if tty, ok := OpenTerminal(); ok {
		g.tty = tty
		_ = syscall.Setpgid(0, 0)
		return
	}
	_, _ = syscall.Setsid()
}

func say(text string) {
	_, _ = syscall.Write(2, []byte("holdfast: "+text+"\n"))
}

// shout tells people what there is no wrapper to tell of. It does not wait for a
// reader who has hung.
func (g *guard) shout(text string) {
	select {
	case g.shouts <- text:
	default:
	}
}

// order is one message of the wrapper.
type order struct {
	message
	files []int
}

// listen passes on what the wrapper says, until it is gone.
func listen(conn int, orders chan<- order) {
	defer close(orders)
	for buf := make([]byte, maxMessage); ; {
		m, files, ok := receive(conn, buf)
		if !ok {
			return
		}
		orders <- order{m, files}
	}
}

func (g *guard) loop() {
	alarm, err := newTimer()
	if err != nil {
		say("timerfd: " + err.Error())
		return
	}
	orders, ticks := make(chan order), make(chan struct{})
	go listen(g.conn, orders)
	go func() {
		for text := range g.shouts {
			say(text)
		}
	}()
	go func() {
		for alarm.wait() {
			ticks <- struct{}{}
		}
	}()
	var mourning chan deaths
	for gone := false; !gone; alarm.set(g.next()) {
		select {
		case o, ok := <-orders:
			if !ok {
				orders, g.deaf = nil, true
				if gone = g.child == 0; !gone {
					g.restoreTerminal() // whoever waited for the wrapper goes on at once
					g.kill()
				}
				continue
			}
			if g.obey(o) {
				mourning = make(chan deaths)
				go reap(mourning)
			}
			gone = o.kind == kindStart && g.child == 0
		case d, ok := <-mourning:
			gone = !ok
			g.mourn(d)
		case <-ticks:
			g.tick()
		}
	}
	if g.deaf { // our end closes the locks: whoever gets them then finds us gone
		return
	}
	g.closeLocks()
	if g.child != 0 {
		g.tell(message{kind: kindGone})
	}
}

// next is when tick has something to do; 0 is never.
func (g *guard) next() int64 {
	at := int64(0)
	for _, t := range [...]int64{g.actAt, g.killAt, g.endAt, g.rescanAt} {
		at = earlier(at, t)
	}
	return at
}

// earlier is the earlier of two instants, of which 0 is never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (g *guard) tick() {
	now := Now()
	due := func(at int64) bool { return at != 0 && now >= at }
	if due(g.actAt) || due(g.killAt) && !g.expired {
		g.expire()
	}
	if due(g.killAt) || due(g.endAt) {
		g.kill()
	}
	if due(g.rescanAt) {
		g.sweep()
	}
}

// tell reports to the wrapper, as long as there is one. One that is stopped and
// so does not listen must not hold us up while there is something to kill; what
// it misses then are names of processes only, as of the rest there is little.
func (g *guard) tell(m message) {
	if g.deaf {
		return
	}
	if m.kind == kindStuck {
		_ = sendNow(g.conn, m)
		return
	}
	_ = send(g.conn, m)
}

// obey carries out an order; true means that the command was started.
func (g *guard) obey(o order) bool {
	switch o.kind {
	case kindStart:
		g.locks = o.files
		g.grace, g.lost = o.n[0], syscall.Signal(o.n[1])
		return g.start(strings.Split(o.text, "\x00"))
	case kindDeadline:
		if !g.expired && g.hunt == nil {
			g.actAt, g.killAt = o.n[0], o.n[1]
		}
	case kindSignal:
		g.forward(syscall.Signal(o.n[0]))
	case kindEnd:
		g.end(syscall.Signal(o.n[0]), o.n[1])
	default: // a wrapper of another version; it is the same file, so never
	}
	return false
}

func (g *guard) closeLocks() {
	for _, fd := range g.locks {
		_ = syscall.Close(fd)
	}
	g.locks = nil
}
