//go:build !unix

package drivertest

import "os"

func (o *other) stops() { o.t.Fatalf("this system cannot stop a process") }
func (o *other) wakes() {}

func alive(pid int) bool {
	_, err := os.FindProcess(pid)
	return err == nil
}

func killPID(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
