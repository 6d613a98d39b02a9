package guard

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// A process is one that /proc showed. Its pid may have gone to another since;
// with the start time it is the same one.
type process struct {
	pid, parent int
	group       int
	name        string
	state       byte
	start       uint64 // ticks since boot
}

func (p process) String() string { return p.name + " (pid " + strconv.Itoa(p.pid) + ")" }

// maxNames is how many processes are named: a message must not grow with a tree.
const maxNames = 20

func names(ps []process) string {
	words := make([]string, 0, maxNames)
	for _, p := range ps[:min(len(ps), maxNames)] {
		words = append(words, p.String())
	}
	text := strings.Join(words, ", ")
	if more := len(ps) - maxNames; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// readProcess reads /proc/PID/stat: "pid (name) state ppid pgrp …"; the name may
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
	parent, err1 := strconv.Atoi(fields[1])
	group, err2 := strconv.Atoi(fields[2])
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	return process{pid, parent, group, printable(b[open+1 : end]), fields[0][0], start}, err1 == nil && err2 == nil && err3 == nil
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

// A snapshot is what /proc showed, by pid. As it is not taken in one moment, one
// that is born or orphaned meanwhile may be missing, or its parent may.
type snapshot map[int]process

func look() snapshot {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := make(snapshot, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// below lists the processes below root by pid, but for children of root that
// started before since, and what is below those.
func (s snapshot) below(root int, since uint64) []process {
	children := make(map[int][]process)
	for _, p := range s {
		if p.parent != root || p.start >= since {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			queue = append(queue, p.pid)
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return found
}

// outside tells whether a process is known not to be one of below: its parents
// are all there, up to the first.
func (s snapshot) outside(p process, root int, since uint64) bool {
	for range s { // not for ever: a pid that went to another meanwhile could make a circle
		if p.parent == root {
			return p.start < since
		}
		if p.parent == 0 {
			return true
		}
		parent, ok := s[p.parent]
		if !ok {
			return false
		}
		p = parent
	}
	return false
}

// descendants lists the processes below root.
func descendants(root int) []process { return look().below(root, 0) }

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
