package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a machine adds of its own to all that is measured there is kept small here.

// onOneCore starts the program again, on one core: there, who waits for an answer
// and who gives it take turns, and what counts is their work. Between two cores a
// wake-up can cost a virtual machine more than all of that, and now this, now that.
func onOneCore() error {
	if runtime.NumCPU() == 1 {
		return nil
	}
	runtime.LockOSThread()
	var core unix.CPUSet
	if err := unix.SchedGetaffinity(0, &core); err != nil {
		return err
	}
	for i := runtime.NumCPU(); core.Count() > 1; i-- {
		core.Clear(i) // the first stays, and works for other programs' interrupts too
	}
	if err := unix.SchedSetaffinity(0, &core); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(exe, os.Args, os.Environ()) //nolint:gosec // itself
}

const hugePage = 2 << 20

// hugePages moves the memory of this process and of its children, such as servers,
// into huge pages, where the kernel can (Linux 6.1 or later). A virtual machine that
// looks for idle memory may make the first touch of a page cost 60 µs, when it has rested
// for ten seconds: ten thousand leases are two thousand such pages, or six huge ones.
// What is compared is work, not how a machine keeps its books.
func hugePages() {
	collapse(os.Getpid())
	lists, _ := filepath.Glob("/proc/self/task/*/children") // a thread has those that it made
	for _, list := range lists {
		children, _ := os.ReadFile(list) // none, if the thread has ended
		for child := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				collapse(pid)
			}
		}
	}
}

// collapse does it for one process. A process that has ended, or memory that
// cannot be collapsed, is as it was.
func collapse(pid int) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(process) //nolint:errcheck // nothing is lost
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	defer maps.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil || mode != "rw-p" {
			continue
		}
		from = (from + hugePage - 1) &^ (hugePage - 1)
		for ; from+hugePage <= to; from += hugePage {
			part := struct{ base, size uintptr }{from, hugePage} // an iovec, in the other process
			_, _, _ = unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(process), uintptr(unsafe.Pointer(&part)), 1, unix.MADV_COLLAPSE, 0, 0)
		}
	}
}
