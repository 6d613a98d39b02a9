package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is unusable at the store's path, or is no lock file, is always 69; a name
// of another kind is 64.
func TestUnusableIs69(t *testing.T) {
	s := newShop(t)
	s.hold("sem", "--slots", "3")
	link, file := s.dir+"-link", filepath.Join(s.dir, "file")
	if err := os.Symlink(s.dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, file, file + "/below"} {
		for _, args := range [][]string{{"run", "L", "--", "true"}, {"ls"}, {"show", "L"}, {"break", "L", "--token", "1", "--reason", "x"}, {"doctor"}} {
			s.run(append([]string{args[0], "--store", "file://" + path}, args[1:]...)...).want(t, 69, path)
		}
	}
	s.free("damaged")
	damaged, err := filepath.Glob(filepath.Join(s.dir, "*damaged*"))
	if err != nil || len(damaged) != 1 {
		t.Fatal(damaged, err)
	}
	if err := os.WriteFile(damaged[0], []byte(strings.Repeat("somebody's text\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "damaged", "--", "true"}, {"show", "damaged"}, {"break", "damaged", "--token", "1", "--reason", "x"}} {
		s.run(args...).want(t, 69, damaged[0])
	}
	s.run("run", "sem", "--", "true").want(t, 64, "semaphore")
}

// The default directory must be of this user alone; the message says how.
func TestDefaultStoreOfAnotherMode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run as another user")
	}
	s := newShop(t)
	uid := 1_900_000_000 + os.Getpid()
	parent := "/run/lock"
	if _, err := os.Stat(parent); err != nil {
		parent = "/tmp"
	}
	dir := fmt.Sprintf("%s/holdfast-%d", parent, uid)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd := s.command("ls")
	cmd.Env, cmd.Dir = cmd.Env[:1], "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} //nolint:gosec // small
	s.launch(cmd).wait().want(t, 69, "denied", "chmod 700 "+dir)
}

func TestMissingInterpreter(t *testing.T) {
	s := newShop(t)
	script := filepath.Join(s.dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter -x\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := s.run("run", "L", "--", script)
	r.want(t, 127, "its interpreter /no/such/interpreter does not exist")
	if strings.Contains(r.err, "command not found") {
		t.Errorf("%q", r.err)
	}
}

// Who is told as the holder is the one at the end of the wait.
func TestHolderAfterAWait(t *testing.T) {
	s := newShop(t)
	hold := func(label string) *process {
		p := s.start("run", "--shared", "--label", label, "L", "--", "sh", "-c", "echo up; exec sleep 300")
		p.says("up")
		return p
	}
	first := hold("first")
	hold("second")
	p := s.start("run", "--wait", "2s", "--json", "L", "--", "true")
	poll(t, "the waiter", func() bool { return waits(p.Process.Pid) })
	first.signal(syscall.SIGTERM)
	first.wait()
	r := p.wait()
	r.want(t, 76, "L is held by second, owner ", `"label":"second"`)
	if strings.Contains(r.err, "first") {
		t.Errorf("%q", r.err)
	}
}

// doctor leaves nothing in the store.
func TestDoctorLeavesNothing(t *testing.T) {
	s := newShop(t)
	s.free("L")
	before, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.run("doctor").wantOut(t, "in a directory of its own")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := s.command("doctor")
	cmd.Stdout = w
	p := s.launch(cmd)
	_ = w.Close()
	if res := p.wait(); res.code != 141 || res.err != "" { // as head leaves it
		t.Errorf("%+v", res)
	}
	after, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("%d files before, %d after: %v", len(before), len(after), after)
	}
}

// A semaphore is not covered by an enclosing lock, nor the reverse.
func TestNestedOfAnotherKind(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct{ outer, inner string }{{"", "--slots=2"}, {"--slots=2", ""}, {"--slots=2", "--slots=3"}, {"--shared", "--slots=2"}} {
		args := []string{"run"}
		if c.outer != "" {
			args = append(args, c.outer)
		}
		args = append(args, "n", "--", binary, "run")
		if c.inner != "" {
			args = append(args, c.inner)
		}
		s.run(append(args, "n", "--", "echo", "ran")...).want(t, 64, "an enclosing run holds")
	}
	s.run("run", "--slots", "2", "n", "--", binary, "run", "--slots", "2", "n", "--", "true").want(t, 0)
}

func TestSemaphoreMessages(t *testing.T) {
	s := newShop(t)
	for range 3 {
		s.hold("S", "--slots", "3")
	}
	r := s.run("run", "--wait", "0", "--slots", "3", "S", "--", "true")
	r.want(t, 75, "S has 3/3 permits held, by web1/job[77]", "; and others", "1 permit,")
	if strings.Contains(r.err, "1 permits") {
		t.Errorf("%q", r.err)
	}
	r = s.run("run", "--slots", "2", "S", "--", "true")
	r.want(t, 64, "S is a semaphore of 3 permits")
}

func TestHelpAndFlags(t *testing.T) {
	s := newShop(t)
	help := s.run("run", "--help")
	if s.run("help", "run").out != help.out {
		t.Error("holdfast help run is not holdfast run --help")
	}
	for _, twice := range []string{"term|kill|continue|signal:NAME", "fail|skip", "0|TIME|forever"} {
		if n := strings.Count(help.out, twice); n != 1 {
			t.Errorf("%q stands there %d times", twice, n)
		}
	}
	help.wantOut(t, "default forever", "default fail")
	s.run("cron", "--help").wantOut(t, "default 0\n", "default skip", "default 1m\n")
	if out := s.run("break", "--help").out; strings.Count(out, "32 hexadecimal digits") != 1 {
		t.Errorf("%s", out)
	}
	r := s.run("show", "--wat", "5", "L")
	r.want(t, 64, "unknown flag --wat")
	if strings.Contains(r.err, "too many") {
		t.Errorf("%q", r.err)
	}
	s.run("show", "-x", "L").want(t, 64, "unknown flag -x\n")
	s.run("show", "L", "--store").want(t, 64, "--store: its value is missing")
	s.run("show", "--json=maybe", "L").want(t, 64, "--json=maybe: cannot be read")
	s.run("--json", "ls").want(t, 64, "flags come after the command: holdfast ls --json")
	s.run("--quiet").want(t, 64, "flags come after the command")
	s.run("show", "--", "-n").wantOut(t, "-n is free")
	if r = s.run("run", "--", "-n", "--", "sh", "-c", "printenv HOLDFAST_NAME"); r.code != 0 || r.out != "-n\n" {
		t.Errorf("%+v", r)
	}
	s.run("run", "L", "--", "echo", "--", "x").wantOut(t, "-- x")
}

// Spans end in no zeros that say nothing.
func TestSpansAreShort(t *testing.T) {
	s := newShop(t)
	s.run("run", "--min-hold", "1h", "--max-run", "1m", "L", "--", "true").want(t, 64, "--min-hold 1h is over --max-run 1m and --grace 10s")
	s.run("run", "--ttl", "25h", "L", "--", "true").want(t, 64, "must be from 200ms to 24h\n")
}
