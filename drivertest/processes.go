package drivertest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var processCases = []Case{
	{
		ID: "G1.11", Rule: "Four processes that add to a number in a file under the lock lose none.",
		Needs: NeedProcesses, Func: processesCount,
	},
	{
		ID: "L1.7", Rule: "When a process that holds a lease is killed, the name is free after its TTL at the latest, and at once where its end is the lock's.",
		Needs: NeedProcesses, Func: processKilled,
	},
	{
		ID: "L1.8", Rule: "A process that was stopped for longer than its TTL knows on waking that it has lost, before it acts, and changes nothing.",
		Needs: NeedProcesses | NeedLease, Func: processStopped,
	},
	{
		ID: "L1.9", Rule: "A process that started another one and was killed does not leave it the lock.",
		Needs: NeedProcesses, Func: childInheritsNot,
	},
}

// other is another process with a client of the store.
type other struct {
	t   *T
	cmd *exec.Cmd
	in  io.WriteCloser

	answers chan string
	end     sync.Once
}

func (t *T) other() *other {
	cmd := t.h.Spawn(t.ctx)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("stdin: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("stdout: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start: %v", err)
	}
	o := &other{t: t, cmd: cmd, in: in, answers: make(chan string, 1)}
	t.Go(func() {
		defer close(o.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			o.answers <- lines.Text()
		}
	})
	t.Cleanup(o.kill)
	return o
}

// says sends a command and returns the answer.
func (o *other) says(format string, args ...any) string {
	o.sends(format, args...)
	return o.hears()
}

func (o *other) sends(format string, args ...any) {
	if _, err := fmt.Fprintf(o.in, format+"\n", args...); err != nil {
		o.t.Fatalf("the other process: %v", err)
	}
}

func (o *other) hears() string {
	select {
	case answer, ok := <-o.answers:
		if !ok {
			o.t.Fatalf("the other process has ended")
		}
		return answer
	case <-time.After(3 * liveness):
		o.t.Fatalf("no answer from the other process")
	}
	return ""
}

// must sends a command that has one good answer.
func (o *other) must(want, format string, args ...any) {
	if got := o.says(format, args...); got != want {
		o.t.Errorf("the other process answers %q to %q, want %q", got, fmt.Sprintf(format, args...), want)
	}
}

// kill ends the process as nothing else does.
func (o *other) kill() {
	o.end.Do(func() {
		_ = o.cmd.Process.Kill() // it may have ended
		_ = o.cmd.Wait()
	})
}

func (o *other) signal(s os.Signal) {
	if err := o.cmd.Process.Signal(s); err != nil {
		o.t.Fatalf("signal: %v", err)
	}
}

func processesCount(t *T) {
	dir, err := os.MkdirTemp("", "drivertest")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, name := filepath.Join(dir, "number"), t.LockName()
	if err = os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	const times = 100
	var others []*other
	for range 4 {
		others = append(others, t.other())
	}
	for _, o := range others {
		o.sends("count %s %s %d", name, file, times)
	}
	for _, o := range others {
		if answer := o.hears(); answer != "counted" {
			t.Errorf("the other process answers %q", answer)
		}
	}
	text, err := os.ReadFile(file)
	if n, _ := strconv.Atoi(string(text)); err != nil || n != 4*times {
		t.Errorf("the file holds %q, want %d (%v)", text, 4*times, err)
	}
}

func processKilled(t *T) {
	c := t.Client()
	name := t.LockName()
	o := t.other()
	ttl := t.Steady()
	o.must("held", "lock %s %v", name, ttl)
	t.busy(c, name, nil, "while another process holds it")
	t.pause(ttl + ttl/2)
	t.busy(c, name, nil, "while another process holds and renews it")
	w := t.waiting(t.ctx, c, name, nil)
	t.pause(t.TTL() / 10)
	o.kill()
	killed := time.Now()
	l := t.wins(w)
	if took := w.at.Sub(killed); took > ttl+liveness/2 {
		t.Errorf("free %v after the holder was killed, its TTL was %v", took, ttl)
	}
	t.frees(l)
}

func processStopped(t *T) {
	c := t.Client()
	name := t.LockName()
	o := t.other()
	o.must("held", "lock %s %v", name, t.Steady())
	o.must("true", "valid")
	o.stops()
	l := t.locks(c, name, &holdfast.AcquireOptions{TTL: t.Long()})
	o.wakes()
	o.must("false", "valid") // the first thing that it does
	o.must("error lost", "renew %v", t.TTL())
	o.must("error lost", "check")
	o.must("error lost", "release")
	if err := l.Check(t.ctx); err != nil || !l.Valid() {
		t.Errorf("the present holder was disturbed: %v", err)
	}
	o.must("error held", "try %s", name)
	t.frees(l)
	o.must("held", "try %s", name)
}

func childInheritsNot(t *T) {
	c := t.Client()
	name := t.LockName()
	o := t.other()
	o.must("held", "lock %s %v", name, t.Steady())
	answer := o.says("child")
	pid, err := strconv.Atoi(strings.TrimSpace(answer))
	if err != nil {
		t.Fatalf("the child: %q", answer)
	}
	t.Cleanup(func() { killPID(pid) })
	o.kill()
	l := t.locks(c, name, nil)
	if !alive(pid) {
		t.Errorf("the child did not outlive its parent")
	}
	if t.props.Bound == driver.ByConnection && l.Valid() {
		t.busy(c, name, nil, "after the holder's child was passed over")
	}
	t.frees(l)
}
