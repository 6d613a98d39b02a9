package guard

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// A process is one that /proc showed. Its pid may have gone to another since;
// with the start time it is the same one.
type process struct {
	pid, parent int
	name        string
	state       byte
	start       uint64 // ticks since boot
}

func (p process) String() string { return p.name + " (pid " + strconv.Itoa(p.pid) + ")" }

func names(ps []process) string {
	words := make([]string, len(ps))
	for i, p := range ps {
		words[i] = p.String()
	}
	return strings.Join(words, ", ")
}

// readProcess reads /proc/PID/stat: "pid (name) state ppid …"; the name may
// hold anything, also a parenthesis.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if err != nil || open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, false
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return process{pid, parent, printable(b[open+1 : end]), fields[0][0], start}, err == nil
}

// printable keeps a process from writing to somebody's terminal by its name.
func printable(name []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, string(name))
}

// descendants lists the living processes below root, in no order. One that is
// born while it looks may be missing.
func descendants(root int) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]process)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				children[p.parent] = append(children[p.parent], p)
			}
		}
	}
	var found []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			queue = append(queue, p.pid)
			found = append(found, p)
		}
	}
	return found
}

// alive leaves out those that only wait to be reaped.
func alive(ps []process) []process {
	var left []process
	for _, p := range ps {
		if p.state != 'Z' && p.state != 'X' {
			left = append(left, p)
		}
	}
	return left
}

// signal sends a signal to this process and no other: the descriptor is of
// whoever has the pid now, and that is p if its parent and start still agree.
func (p process) signal(sig syscall.Signal) error {
	fd, _, e := syscall.RawSyscall(sysPidfdOpen, uintptr(p.pid), 0, 0)
	now, ok := readProcess(p.pid)
	same := ok && now.start == p.start
	if e != 0 { // an old kernel
		if !same || e == syscall.ESRCH {
			return syscall.ESRCH
		}
		return syscall.Kill(p.pid, sig)
	}
	defer func() { _ = syscall.Close(int(fd)) }()
	if !same {
		return syscall.ESRCH
	}
	return errno(syscall.RawSyscall6(sysPidfdSendSignal, fd, uintptr(sig), uintptr(unsafe.Pointer(nil)), 0, 0, 0))
}

// signalAll signals every process and returns those that it may not signal.
func signalAll(ps []process, sigs ...syscall.Signal) (refused []process) {
	for _, p := range ps {
		for _, sig := range sigs {
			if errors.Is(p.signal(sig), syscall.EPERM) {
				refused = append(refused, p)
				break
			}
		}
	}
	return refused
}

// Parent is the parent of a process; 0 if there is none.
func Parent(pid int) int {
	p, _ := readProcess(pid)
	return p.parent
}

// Is tells whether a process is a guard, by its name.
func Is(pid int) bool {
	p, ok := readProcess(pid)
	return ok && p.name == Arg0
}
