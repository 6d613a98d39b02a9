package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// office is a job that notes when it begins and ends, and takes a moment to end
// when it is told to.
const office = `echo begin $1 $HOLDFAST_TOKEN >> "$2"; trap 'sleep 0.2; echo end $1 $HOLDFAST_TOKEN >> "$2"; exit 0' TERM; echo up; while :; do sleep 0.02; done`

// terms reads what office wrote: who led in turn. Terms that overlap, or have no
// larger token, are errors. The last may still run.
func terms(t *testing.T, log string) (who []string) {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	inside, last := "", uint64(0)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("line %q", line)
		}
		token, _ := strconv.ParseUint(f[2], 10, 64)
		switch {
		case f[0] == "begin" && inside != "":
			t.Errorf("%s begins while %s leads", f[1], inside)
		case f[0] == "begin" && token <= last:
			t.Errorf("%s leads with token %d after %d", f[1], token, last)
		case f[0] == "begin":
			who, inside, last = append(who, f[1]), f[1], token
		case f[1] != inside || token != last:
			t.Errorf("%s ends, %s leads", line, inside)
		default:
			inside = ""
		}
	}
	return who
}

// A rolling restart of five candidates: each leads in its turn, and none beside
// another.
func TestElectRollingRestart(t *testing.T) {
	s := newShop(t)
	log := filepath.Join(t.TempDir(), "log")
	var all []*process
	start := func(i int) { all = append(all, s.start("elect", "svc", "--shell", "--", office, strconv.Itoa(i), log)) }
	for i := range 5 {
		start(i)
	}
	led := func(n int) bool { return len(terms(t, log)) >= n }
	poll(t, "the first leader", func() bool { return led(1) })
	for round := range 5 {
		who := terms(t, log)
		now, err := strconv.Atoi(who[len(who)-1])
		if err != nil {
			t.Fatal(err)
		}
		all[now].signal(syscall.SIGTERM)
		all[now].wait().want(t, 0)
		start(len(all))
		poll(t, "the next leader", func() bool { return led(round + 2) })
	}
	for _, p := range all {
		_ = p.Process.Signal(syscall.SIGTERM) // some have ended
	}
	for _, p := range all {
		switch r := p.wait(); r.code {
		case 0, 128 + int(syscall.SIGTERM):
		case -int(syscall.SIGTERM): // it had hardly begun
		default:
			t.Errorf("%+v", r)
		}
	}
	t.Log("led in turn:", terms(t, log))
	s.free("svc")
	s.noneLeft()
}

// A command that fails is run again, in a new term, after a pause; one that
// succeeds is done.
func TestElectRunsAgain(t *testing.T) {
	s := newShop(t)
	count := filepath.Join(t.TempDir(), "count")
	r := s.run("elect", "svc", "--shell", "--", `echo $HOLDFAST_TOKEN >> "$1"; [ $(wc -l < "$1") = 3 ] || exit 9`, count)
	r.want(t, 0, "leading svc", "the command failed; a candidate again in")
	b, err := os.ReadFile(count)
	if err != nil {
		t.Fatal(err)
	}
	tokens := strings.Fields(string(b))
	if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
		t.Errorf("tokens %q", tokens)
	}
	s.free("svc")
	s.noneLeft()
}

func TestElectShowsValue(t *testing.T) {
	s := newShop(t)
	p := s.start("elect", "svc", "--value", "10.0.0.1:80", "--label", "web1", "--", "sh", "-c", "echo up; exec sleep 300")
	p.says("up")
	r := s.run("show", "svc")
	if r.code != 0 || !strings.Contains(r.out, "web1") || !strings.Contains(r.out, "says 10.0.0.1:80") {
		t.Errorf("%+v", r)
	}
	if r := s.run("ls", "--json"); !strings.Contains(r.out, `"value":"10.0.0.1:80"`) {
		t.Errorf("%+v", r)
	}
	// A command that does not catch it dies of the signal, and is not run again.
	p.signal(syscall.SIGHUP)
	p.wait().want(t, 128+int(syscall.SIGHUP))
	s.free("svc")
	s.noneLeft()
}

// A leader whose term a person breaks is ended with all that it started, and is a
// candidate again.
func TestElectBroken(t *testing.T) {
	s := newShop(t)
	log := filepath.Join(t.TempDir(), "log")
	a := s.start("elect", "svc", "--shell", "--", office, "a", log)
	a.says("up")
	b := s.start("elect", "svc", "--shell", "--", office, "b", log)
	token := regexp.MustCompile(`token (\d+)`).FindStringSubmatch(s.run("show", "svc").out)
	if token == nil {
		t.Fatal("show tells no token")
	}
	s.run("break", "svc", "--token", token[1], "--reason", "your turn is over").want(t, 0)
	poll(t, "the next leader", func() bool { return len(terms(t, log)) >= 2 })
	poll(t, "what became of it", func() bool { return strings.Contains(a.err.String(), "the term was lost; a candidate again") })
	if !strings.Contains(a.err.String(), "your turn is over") {
		t.Errorf("stderr %q", a.err)
	}
	for _, p := range []*process{a, b} {
		p.signal(syscall.SIGTERM)
		p.wait()
	}
	terms(t, log)
	s.free("svc")
	s.noneLeft()
}

// A leader that is killed with -9 has nothing left running when the next one
// leads.
func TestElectKilledLeader(t *testing.T) {
	s := newShop(t)
	log := filepath.Join(t.TempDir(), "log")
	work := `trap '' TERM; (trap '' TERM; while :; do echo $1 >> "$2"; sleep 0.01; done) & echo up; wait`
	a := s.start("elect", "svc", "--shell", "--", work, "a", log)
	a.says("up")
	b := s.start("elect", "svc", "--shell", "--", work, "b", log)
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.says("up")
	poll(t, "the work of the next leader", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.HasSuffix(string(text), strings.Repeat("b\n", 20))
	})
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if _, after, _ := strings.Cut(string(text), "b\n"); strings.Contains(after, "a\n") {
		t.Errorf("the dead leader's work went on beside the next one's: %q", text)
	}
	b.signal(syscall.SIGTERM)
	b.signal(syscall.SIGTERM) // it ignores the first
	b.wait()
	s.free("svc")
	s.noneLeft()
}

func TestElectRefuses(t *testing.T) {
	s := newShop(t)
	for text, args := range map[string][]string{
		"a leader may not go on beside": {"elect", "svc", "--on-lost", "continue", "--", "true"},
		"must be UTF-8 of at most":      {"elect", "svc", "--value", "a\nb", "--", "true"},
		"unknown flag --shared":         {"elect", "svc", "--shared", "--", "true"},
		"unknown flag --max-run":        {"elect", "svc", "--max-run", "1s", "--", "true"},
		"the command is missing":        {"elect", "svc"},
		"excludes nobody":               {"elect", "svc", "--store", "memory://", "--", "true"},
	} {
		s.run(args...).want(t, 64, text)
	}
	s.run("elect", "svc", "--", "/no/such/program").want(t, 127, "/no/such/program")
	s.run("elect", "svc", "--store", "file:///no/such/dir/at/all", "--", "true").want(t, 69)
	held := s.start("run", "svc", "--", "sh", "-c", "echo up; exec sleep 300")
	held.says("up")
	p := s.start("elect", "svc", "--", "true")
	poll(t, "the candidate", func() bool { return waitsAt(p.Process.Pid, "svc") })
	p.signal(syscall.SIGINT)
	p.wait().want(t, 128+int(syscall.SIGINT), "interrupted by INT")
	s.run("run", "other", "--", binary, "elect", "other", "--", "true").want(t, 0) // within a run of the name
	s.noneLeftBut(held)
}

// waitsAt tells whether a process has come to a name's file.
func waitsAt(pid int, name string) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if path, err := os.Readlink(fd); err == nil && strings.HasSuffix(path, name+".lock") {
			return true
		}
	}
	return false
}

func (s *shop) noneLeftBut(p *process) {
	s.t.Helper()
	p.signal(syscall.SIGTERM)
	p.wait()
	s.noneLeft()
}
