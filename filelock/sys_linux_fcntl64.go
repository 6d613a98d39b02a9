//go:build linux && (386 || arm || mips || mipsle)

package filelock

import "syscall"

// The plain call takes 32-bit offsets there.
const sysFcntl = syscall.SYS_FCNTL64
