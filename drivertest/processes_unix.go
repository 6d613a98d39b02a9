//go:build unix

package drivertest

import "syscall"

func (o *other) stops() { o.signal(syscall.SIGSTOP) }
func (o *other) wakes() { o.signal(syscall.SIGCONT) }

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
func killPID(pid int)    { _ = syscall.Kill(pid, syscall.SIGKILL) }
