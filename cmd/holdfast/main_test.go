package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests drive the real command in real processes, and for what needs a
// lease store the one of testdata/leases.
var binary, leases string

func TestMain(m *testing.M) {
	hearSignals()
	os.Exit(buildAndRun(m))
}

// hearSignals gives the programs that the tests start the signals of a terminal,
// also where the tests run under nohup or in the background of a script: what is
// ignored is inherited, what is caught is not.
func hearSignals() {
	caught := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // one test runs it as another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary, leases = filepath.Join(dir, "holdfast"), filepath.Join(dir, "leases")
	for path, pkg := range map[string]string{binary: ".", leases: "./testdata/leases"} {
		build := exec.CommandContext(context.Background(), "go", "build", "-o", path, pkg)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return 1
		}
	}
	return m.Run()
}

// soon bounds what must happen on a machine of any load.
const soon = 60 * time.Second

// shop is a file store of its own, and a mark that all processes carry which
// are started on it.
type shop struct {
	t        *testing.T
	dir, url string
	mark     string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, dir: dir, url: "file://" + dir, mark: "HOLDFAST_TEST=" + rand.Text()}
	t.Cleanup(func() {
		for _, pid := range s.alive() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return s
}

// process is a command that runs.
type process struct {
	*exec.Cmd
	t        *testing.T
	out, err *buffer
	done     chan struct{}
}

type result struct {
	code     int
	out, err string
}

// buffer is a bytes.Buffer that may be read while it grows.
type buffer struct {
	mu  chan struct{}
	buf bytes.Buffer
}

func newBuffer() *buffer { return &buffer{mu: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu <- struct{}{}
	defer func() { <-b.mu }()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu <- struct{}{}
	defer func() { <-b.mu }()
	return b.buf.String()
}

func (s *shop) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOLDFAST_STORE=" + s.url, s.mark}
	cmd.Dir = s.t.TempDir()
	cmd.WaitDelay = soon
	return cmd
}

// start starts holdfast with arguments.
func (s *shop) start(args ...string) *process {
	s.t.Helper()
	return s.launch(s.command(args...))
}

func (s *shop) launch(cmd *exec.Cmd) *process {
	s.t.Helper()
	p := &process{Cmd: cmd, t: s.t, out: newBuffer(), err: newBuffer(), done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.err
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

// run runs holdfast to its end.
func (s *shop) run(args ...string) result {
	s.t.Helper()
	return s.start(args...).wait()
}

func (p *process) wait() result {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(soon):
		p.t.Fatalf("%v does not end; stderr: %s", p.Args, p.err)
	}
	code := p.ProcessState.ExitCode()
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = -int(status.Signal())
	}
	return result{code, p.out.String(), p.err.String()}
}

// says waits until the command has printed a text.
func (p *process) says(text string) {
	p.t.Helper()
	poll(p.t, fmt.Sprintf("%q on stdout", text), func() bool { return strings.Contains(p.out.String(), text) })
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit status %d, want %d; stdout %q, stderr %q", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			t.Errorf("stderr %q lacks %q", r.err, text)
		}
	}
}

// alive lists the processes that carry the mark, those of holdfast itself
// among them.
func (s *shop) alive() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(b), "\x00"), s.mark) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// noneLeft fails if a process is alive that was started on the shop.
func (s *shop) noneLeft() {
	s.t.Helper()
	for _, pid := range s.alive() {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		s.t.Errorf("still alive: %d %q", pid, args)
	}
}

// free fails if a name is not free at once.
func (s *shop) free(name string) {
	s.t.Helper()
	s.run("run", "--wait", "0", name, "--", "true").want(s.t, 0)
}

// busy tells whether a name is held.
func (s *shop) busy(name string) bool {
	s.t.Helper()
	switch r := s.run("run", "--wait", "0", name, "--", "true"); r.code {
	case 0:
		return false
	case 75:
		return true
	default:
		s.t.Fatalf("exit status %d: %s", r.code, r.err)
		return false
	}
}

// guardOf is the guard of a holdfast run, and its command.
func (p *process) guardOf() (guard, command int) {
	p.t.Helper()
	poll(p.t, "the guard and its command", func() bool {
		guard = child(p.Process.Pid)
		command = child(guard)
		return command != 0
	})
	return guard, command
}

// child is the first child of a process; 0 if it has none.
func child(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		if b, err = os.ReadFile(f); err == nil && len(b) > 0 {
			break
		}
	}
	if fields := strings.Fields(string(b)); err == nil && len(fields) > 0 {
		pid, _ := strconv.Atoi(fields[0])
		return pid
	}
	return 0
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// state is the letter that /proc has for a process.
func state(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}
