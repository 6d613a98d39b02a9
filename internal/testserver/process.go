// Package testserver runs the servers that tests and benchmarks need: as child
// processes that end with ours, on free ports of 127.0.0.1, in folders of their
// own. What is particular to one kind of server has a package of its own beside it.
package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Patience bounds what is waited for; a busy machine may need much.
const Patience = time.Minute

// ErrEnded says that a server ended before it served, as it does on a port that is
// taken.
var ErrEnded = errors.New("the server ended")

// Process is a server that runs, or has been ended. Its methods may be called at
// any time.
type Process struct {
	// Log is the file that gets what the server prints, if it writes none itself; the
	// end of either is told when it does not start.
	Log string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// Begin starts the server, if it does not run.
func (p *Process) Begin(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !p.gone() {
		return nil
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // nothing is lost
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says why
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	return nil
}

// gone tells whether the server ended by itself; under mu.
func (p *Process) gone() bool {
	if p.cmd.Process.Signal(syscall.Signal(0)) == nil {
		return false
	}
	<-p.ended // at once
	return true
}

// Await waits until the server serves; if it does not, it is ended.
func (p *Process) Await(serves func() bool) error {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		select {
		case <-ended:
			p.Kill()
			return fmt.Errorf("%w: %s", ErrEnded, p.lastWords())
		case <-tick.C:
			if serves() {
				return nil
			}
		}
	}
	p.Kill()
	return fmt.Errorf("the server does not serve: %s", p.lastWords())
}

func (p *Process) lastWords() []byte {
	text, _ := os.ReadFile(p.Log)
	const most = 4000
	return text[max(0, len(text)-most):]
}

// Kill ends it as a crash does, and waits until it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.cmd = nil
	}
}

// Signal sends it one, if it runs. After SIGSTOP it stands still when Signal returns.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil || sig != syscall.SIGSTOP {
		return err
	}
	return Until("the server stands still", func() bool { return p.gone() || stopped(p.cmd.Process.Pid) })
}

// stopped tells whether all threads of a process stand still.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		_, state, _ := strings.Cut(string(text), ") ")
		if err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// Until polls for a condition.
func Until(what string, ok func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			return errors.New("not in time: " + what)
		}
	}
	return nil
}
