package guard

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Numbers that package syscall does not have. The system calls' are the same
// on every architecture.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434

	clockBoottime     = 7
	timerAbstime      = 1
	pollOut           = 4
	prSetName         = 15
	prSetSubreaper    = 36
	sigBlock          = 0
	sigSetmask        = 2
	signalSetSize     = 8
	sigIgnore         = 1
	waitAnyKind       = 0x40000000 // __WALL
	waitStoppedAsWell = syscall.WUNTRACED
)

// Now reads CLOCK_BOOTTIME in nanoseconds: the clock of all instants here. It
// goes on while the machine is suspended, and is the same in all processes.
func Now() int64 {
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// Subreaper makes orphans of the caller's tree the caller's children.
func Subreaper() error {
	return errno(syscall.RawSyscall(syscall.SYS_PRCTL, prSetSubreaper, 1, 0))
}

func setName(name string) {
	b := append([]byte(name), 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&b[0])), 0)
}

func errno(_, _ uintptr, e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

// Writable tells whether a write to fd would not wait: there is room, or it
// fails at once.
func Writable(fd uintptr) bool {
	p := struct {
		fd            int32
		events, found int16
	}{int32(fd), pollOut, 0} //nolint:gosec // a descriptor
	var now syscall.Timespec
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}

// A timer is a timerfd on CLOCK_BOOTTIME.
type timer int

func newTimer() (timer, error) {
	fd, _, e := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, syscall.O_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return timer(fd), nil
}

// set makes the timer fire at an instant; 0 stops it.
func (t timer) set(at int64) {
	spec := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(at)}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(t), timerAbstime, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

// wait blocks until the timer fires.
func (t timer) wait() bool {
	var b [8]byte
	for {
		_, err := syscall.Read(int(t), b[:])
		if err != syscall.EINTR {
			return err == nil
		}
	}
}

// ignoreSignals lets no signal that is meant for the command end the guard: a
// service manager sends TERM to everything it started. The Go runtime has
// handlers for all of these and sets each back to the default in the process
// that is forked for the command, so that the command does not inherit this.
func ignoreSignals() {
	ignore := action{handler: sigIgnore}
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGPIPE, syscall.SIGIO, syscall.SIGPWR, syscall.SIGXCPU, syscall.SIGSTKFLT,
	} {
		setAction(sig, &ignore, nil)
	}
}

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

func setAction(sig syscall.Signal, set, old *action) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), signalSetSize, 0, 0)
}

// StopGroup stops the caller's process group with a signal of the terminal, as
// the kernel would have if the caller did not catch it; signal.Reset is not
// enough for these. It returns after wait, once somebody has continued the
// group, or when the kernel does not stop it since no shell could continue it.
func StopGroup(sig syscall.Signal, wait func()) {
	var standard, was action
	setAction(sig, &standard, &was)
	_ = syscall.Kill(0, sig)
	wait()
	setAction(sig, &was, nil)
}

// A Terminal is the controlling terminal of this session.
type Terminal int

// OpenTerminal finds the controlling terminal; ok is false if there is none.
func OpenTerminal() (t Terminal, ok bool) {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	return Terminal(fd), err == nil
}

// Foreground is the process group that reads the terminal and gets its
// signals.
func (t Terminal) Foreground() int {
	var group int32
	if errno(syscall.Syscall(syscall.SYS_IOCTL, uintptr(t), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))) != nil {
		return 0
	}
	return int(group)
}

// SetForeground puts a process group there. The kernel answers one that is in
// the background itself with SIGTTOU, unless the thread blocks that.
func (t Terminal) SetForeground(group int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	block, old := uint64(1)<<(syscall.SIGTTOU-1), uint64(0)
	mask := func(how uintptr, set, old *uint64) {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), signalSetSize, 0, 0)
	}
	mask(sigBlock, &block, &old)
	g := int32(group) //nolint:gosec // a pid_t
	_, _, _ = syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(t), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g)))
	mask(sigSetmask, &old, nil)
}

// isTerminal tells whether fd is a terminal.
func isTerminal(fd int) bool {
	var t syscall.Termios
	return errno(syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TCGETS, uintptr(unsafe.Pointer(&t)))) == nil
}
