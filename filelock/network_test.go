//go:build linux

package filelock

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/driver"
)

func TestNetworkFileSystem(t *testing.T) {
	// The last words of /proc, which is none of them, stand for one here.
	const procMagic = 0x9fa0
	networkTypes[procMagic] = "NFS"
	defer delete(networkTypes, procMagic)
	if _, err := New("/proc", nil); driver.KindOf(err) != driver.Unsupported || !strings.Contains(err.Error(), "NFS") {
		t.Fatal(err)
	}
	c := openStore(t, "/proc", &Options{AllowNetwork: true})
	if p := c.Properties(); p.Class != driver.ClassD || len(p.Warnings) == 0 || !strings.Contains(p.Warnings[0], "NFS") {
		t.Fatalf("%+v", p)
	}
}

// A lock call that a server holds up may hold up its own goroutine only. Here
// the kernel holds it up, with a filter on system calls.
func TestHungNetworkFileSystem(t *testing.T) {
	t.Parallel()
	ch := start(t, command("hung", t.TempDir()))
	timer := time.AfterFunc(testPatience/2, func() { _ = ch.cmd.Process.Kill() })
	defer timer.Stop()
	if answer := ch.say(""); answer != "alive" {
		t.Fatal(answer)
	}
}

func playHung(dir string) int {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	networkTypes[uint32(fs.Type)] = "NFS" //nolint:gosec // as the kernel has it
	s, err := New(dir, &Options{AllowNetwork: true})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	filter := make(chan int)
	go func() {
		runtime.LockOSThread()
		filter <- holdUp(sysFcntl, setLock)
		_, _ = s.Acquire(context.Background(), request("k", driver.Exclusive))
	}()
	// Wait until a call was held up: ioctl SECCOMP_IOCTL_NOTIF_RECV.
	var notification [80]byte
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(<-filter), 0xc0502100, uintptr(unsafe.Pointer(&notification)))
	if errno != 0 {
		fmt.Fprintln(os.Stdout, "seccomp:", errno)
		return 1
	}
	runtime.GC()
	fmt.Fprintln(os.Stdout, "alive")
	return 0
}

// holdUp makes a system call of this thread, with that second argument, wait
// for an answer to the descriptor that it returns.
func holdUp(call, argument uint32) int {
	const (
		load, jump, give   = 0x20, 0x15, 0x06
		allow, ask         = 0x7fff0000, 0x7fc00000
		noNewPrivileges    = 38
		setFilter, listens = 1, 1 << 3
	)
	program := []syscall.SockFilter{
		{Code: load, K: 0},
		{Code: jump, Jf: 3, K: call},
		{Code: load, K: 24},
		{Code: jump, Jf: 1, K: argument},
		{Code: give, K: ask},
		{Code: give, K: allow},
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, noNewPrivileges, 1, 0, 0, 0, 0)
	seccomp, ok := map[string]uintptr{"amd64": 317, "386": 354, "arm": 383}[runtime.GOARCH]
	if !ok {
		seccomp = 277
	}
	prog := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // six
	fd, _, _ := syscall.Syscall(seccomp, setFilter, listens, uintptr(unsafe.Pointer(&prog)))
	return int(fd)
}
