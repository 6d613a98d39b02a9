//go:build linux && !(386 || arm || mips || mipsle)

package filelock

import "syscall"

const sysFcntl = syscall.SYS_FCNTL
