package driver

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockRealtime = 0
	clockBoottime = 7
)

// bootTime reads CLOCK_BOOTTIME: like the clock behind time.Since, but it runs
// on while the machine is suspended. The call never blocks, so it need not
// tell the scheduler (RawSyscall): that would cost more than the call.
func bootTime() int64 {
	now := readClock(clockBoottime)
	return now.Nano()
}

// inBubble tells a bubble's time from that of a machine whose clock is wrong.
func inBubble(t time.Time) bool {
	return int64(readClock(clockRealtime).Sec)-t.Unix() > 24*60*60 //nolint:unconvert // 32 bits on some
}

func readClock(id uintptr) (ts syscall.Timespec) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts
}
