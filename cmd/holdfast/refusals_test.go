package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A memory store is of one process: a lock in it excludes nobody.
func TestMemoryIsRefused(t *testing.T) {
	s := newShop(t)
	for _, args := range [][]string{{"run", "L", "--", "true"}, {"cron", "L", "--", "true"}, {"acquire", "L"}, {"renew", "x"}, {"check", "x"}} {
		cmd := s.command(args...)
		cmd.Env = append(cmd.Env, "HOLDFAST_STORE=memory://")
		s.launch(cmd).wait().want(t, 64, "each process has its own")
		s.run(append([]string{args[0], "--store", "memory://x"}, args[1:]...)...).want(t, 64, "each process has its own")
	}
	s.run("doctor", "--store", "memory://").wantOut(t, "this process only")
}

// Looking makes no directory; locking does.
func TestLookingMakesNothing(t *testing.T) {
	s := newShop(t)
	dir := filepath.Join(s.dir, "mistyped")
	for _, args := range [][]string{{"ls"}, {"show", "L"}, {"watch"}, {"break", "L", "--token", "1", "--reason", "x"}} {
		s.run(append([]string{args[0], "--store", "file://" + dir}, args[1:]...)...).want(t, 69, "no such directory: "+dir)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the directory was made")
	}
	s.run("run", "--store", "file://"+dir, "L", "--", "true").want(t, 0)
	s.run("ls", "--store", "file://"+dir).want(t, 0)
	for _, root := range []string{"file:///", "file:////", "file:///./", "file:///tmp/.."} {
		s.run("run", "--store", root, "L", "--", "true").want(t, 64, "root directory")
		s.run("ls", "--store", root).want(t, 64, "root directory")
	}
}

// The file store cannot tell who waits, so nothing is said of it.
func TestUnknownWaitersAreNotCounted(t *testing.T) {
	s := newShop(t)
	s.hold("L")
	r := s.run("ls")
	lines := strings.Split(r.out, "\n")
	if f := strings.Fields(lines[1]); len(f) < 4 || f[3] != "-" {
		t.Errorf("%q", r.out)
	}
	p := s.start("run", "--json", "--wait", "11s", "L", "--", "true")
	r = p.wait()
	var e map[string]any
	first, _, _ := strings.Cut(r.err, "\n")
	if err := json.Unmarshal([]byte(first), &e); err != nil || e["event"] != "waiting" || e["holder"] == nil {
		t.Fatalf("%v %q", err, r.err)
	}
	if _, told := e["ahead"]; told {
		t.Errorf("ahead of us: %v", e["ahead"])
	}
}

// What could not be printed is an error; a reader who has gone is none to tell.
func TestOutputThatCannotBeWritten(t *testing.T) {
	s := newShop(t)
	s.hold("L")
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"show", "L"}, {"show", "--json", "L"}, {"version"}, {"completion", "bash"}, {"help"}, {"run", "--help"}, {"watch"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := s.command(args...)
		cmd.Stdout = full
		s.launch(cmd).wait().want(t, 74, "cannot write to stdout: ")
		_ = full.Close()
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := s.command("show", "L")
	cmd.Stdout = w
	p := s.launch(cmd)
	_ = w.Close()
	if res := p.wait(); res.code != -int(syscall.SIGPIPE) || res.err != "" {
		t.Errorf("%+v", res)
	}
}

// A reader of our messages who has gone does not end the command.
func TestBrokenStderrDoesNotEndTheCommand(t *testing.T) {
	s := newShop(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := s.command("run", "--max-run", "100ms", "L", "--", "sh", "-c", "exec 2>/dev/null; trap 'sleep 0.2; echo gracefully; exit 3' TERM; while :; do sleep 0.01; done")
	cmd.Stderr = w
	p := s.launch(cmd)
	_ = w.Close()
	if res := p.wait(); res.code != 124 || !strings.Contains(res.out, "gracefully") {
		t.Errorf("%+v", res)
	}
}

// A wait that a signal ends says so.
func TestInterruptedWaitIsTold(t *testing.T) {
	s := newShop(t)
	s.hold("L")
	for _, flags := range [][]string{{}, {"--quiet"}, {"--json"}} {
		p := s.start(append(append([]string{"run"}, flags...), "L", "--", "true")...)
		poll(t, "the waiter", func() bool { return waits(p.Process.Pid) })
		p.signal(syscall.SIGTERM)
		r := p.wait()
		switch {
		case len(flags) == 0:
			r.want(t, 143, "interrupted by TERM while waiting: L is held by web1/job[77]")
		case flags[0] == "--json":
			r.want(t, 143, `"event":"interrupted"`, `"exit":143`, `"signal":"TERM"`, `"holder":{`)
		case r.err != "":
			t.Errorf("with --quiet: %q", r.err)
		}
	}
	p := s.start("run", "--jitter", "24h", "M", "--", "true")
	poll(t, "the signals to be caught", func() bool { return catches(p.Process.Pid, syscall.SIGTSTP) })
	p.signal(syscall.SIGTERM)
	p.wait().want(t, 143, "interrupted by TERM in the --jitter")
}

// While --min-hold keeps the name, a terminal says why the prompt does not come.
func TestMinHoldOnATerminal(t *testing.T) {
	s := newShop(t)
	term := s.onTerminal(binary, "run", "--min-hold", "1h", "L", "--", "true")
	term.shows("done; keeping L for 1h more")
	term.signal(syscall.SIGTERM)
	term.shows("interrupted by TERM: L is freed ")
	term.shows(" before its --min-hold is over")
	term.process.wait().want(t, 0)
	s.free("L")
}

func TestSpansWithoutALimit(t *testing.T) {
	s := newShop(t)
	s.run("run", "--max-run", "2000h", "--grace", "300000h", "L", "--", "true").want(t, 0)
	s.run("run", "--max-run", "2562047h", "--grace", "2562047h", "L", "--", "true").want(t, 0)
	s.run("run", "--max-run", "0", "L", "--", "sh", "-c", "sleep 0.1; exit 3").want(t, 3)
	s.run("run", "--max-run", "-1s", "--jitter", "-1s", "L", "--", "true").want(t, 64, `--max-run "-1s": must not be negative`, `--jitter "-1s"`)
	s.run("run", "--min-hold", "25h", "L", "--", "true").want(t, 64, "must be from 0s to 24h")
}

// A label is printed as it is.
func TestLabels(t *testing.T) {
	s := newShop(t)
	_, owner := s.hold("L", "--label", "deploy of web1/app[3] by ann")
	r := s.run("show", "L")
	r.wantOut(t, "deploy of web1/app[3] by ann, owner "+owner+", token ")
	if r = s.run("show", "--json", "L"); strings.Contains(r.out, `"pid"`) || strings.Contains(r.out, `"host"`) {
		t.Errorf("%s", r.out)
	}
	p := s.start("run", "M", "--", "sh", "-c", "echo up; exec sleep 300")
	p.says("up")
	s.run("show", "--json", "M").wantOut(t, `"host":"`, `"pid":`)
}

// Where the store came from is told, but no secret.
func TestMisnamedStores(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct{ env, flag, text string }{
		{"HOLDFAST_STORE=/var/locks", "", `HOLDFAST_STORE is "/var/locks": not a URL such as file:///var/locks`},
		{"HOLDFAST_STORE=", "", "HOLDFAST_STORE is empty"},
		{"", "--store=", "--store is empty"},
		{"", "--store=//u:hunter2@h/x", `--store is "…@h/x": not a URL`},
		{"", "--store=/x?password=hunter2", `--store is "/x?…": not a URL`},
		{"HOLDFAST_STORE=nosuch://u:hunter2@h", "", `HOLDFAST_STORE has the unknown scheme "nosuch"; this holdfast has `},
	} {
		for _, args := range [][]string{{"run", "L", "--", "true"}, {"ls"}, {"doctor"}} {
			if c.flag != "" {
				args = append([]string{args[0], c.flag}, args[1:]...)
			}
			cmd := s.command(args...)
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			r := s.launch(cmd).wait()
			r.want(t, 64, c.text)
			if strings.Contains(r.err, "hunter2") || strings.Contains(r.err, "import") {
				t.Errorf("%s", r.err)
			}
		}
	}
}
