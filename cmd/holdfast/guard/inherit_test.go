package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

func TestGuardOutlivesSignals(t *testing.T) {
	r := start(t, Order{}, "sleep 0.3; exit 4")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGPIPE} {
		_ = syscall.Kill(r.pid, sig)
	}
	if status := r.until(Exited).Status; status.ExitStatus() != 4 {
		t.Errorf("status %v", status)
	}
	r.until(Gone)
}

// The command must find signals as it would without us.
func TestCommandInheritsDispositions(t *testing.T) {
	path, has := file(t)
	want, err := exec.CommandContext(t.Context(), "sh", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, Order{}, "grep -E 'Sig(Ign|Blk)' /proc/self/status > "+path)
	r.until(Gone)
	if !has(string(want))() {
		got, _ := os.ReadFile(path)
		t.Errorf("got %s want %s", got, want)
	}
}

func TestLockFilesStayWithTheGuard(t *testing.T) {
	path, has := file(t)
	lock, err := os.Create(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	r := start(t, Order{Locks: []*os.File{lock}}, "ls -l /proc/self/fd > "+path+"; echo up >> "+path+"; sleep 300")
	poll(t, "the command", has("up"))
	if has(lock.Name())() { // not any other that the tests inherited
		t.Error("the command has the lock file")
	}
	held := func() bool {
		links, _ := filepath.Glob("/proc/" + strconv.Itoa(r.pid) + "/fd/*")
		return slices.ContainsFunc(links, func(l string) bool { to, _ := os.Readlink(l); return to == lock.Name() })
	}
	if !held() {
		t.Error("the guard has not")
	}
	r.End(syscall.SIGTERM, Now()+int64(soon))
	r.until(Gone)
}

func TestFailedStart(t *testing.T) {
	conn, err := Start([]string{"x"}, os.Environ(), [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Run(Order{Path: "/nonexistent/x"}); err != nil {
		t.Fatal(err)
	}
	if r, ok := conn.Next(); !ok || r.Kind != Failed || r.Err != syscall.ENOENT { //nolint:errorlint // an errno is never wrapped
		t.Errorf("report %+v %v", r, ok)
	}
	conn.Close()
}
