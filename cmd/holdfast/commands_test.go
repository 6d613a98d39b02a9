package main

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// hold holds a name for the time of a test, and returns its token and owner.
func (s *shop) hold(name string, flags ...string) (token, owner string) {
	s.t.Helper()
	args := append([]string{"run", "--label", "web1/job[77]"}, flags...)
	p := s.start(append(args, name, "--", "sh", "-c", "echo $HOLDFAST_TOKEN $HOLDFAST_OWNER up; exec sleep 300")...)
	p.says("up")
	f := strings.Fields(p.out.String())
	return f[0], f[1]
}

func (r result) wantOut(t *testing.T, texts ...string) {
	t.Helper()
	if r.code != 0 {
		t.Errorf("exit status %d: %s", r.code, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			t.Errorf("stdout %q lacks %q", r.out, text)
		}
	}
}

func TestLs(t *testing.T) {
	s := newShop(t)
	if r := s.run("ls"); r.code != 0 || r.out != "" || r.err != "" {
		t.Errorf("an empty store: %+v", r)
	}
	token, owner := s.hold("orders/1")
	s.hold("orders/2", "--shared")
	s.hold("other")
	s.hold("slots", "--slots", "3")
	r := s.run("ls")
	r.wantOut(t, "NAME", "orders/1", "orders/2", "other", "web1/job[77]", "1/3")
	if strings.Index(r.out, "orders/1") > strings.Index(r.out, "other") {
		t.Errorf("no order: %s", r.out)
	}
	r = s.run("ls", "--json", "orders/")
	var records []map[string]any
	for line := range strings.Lines(r.out) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	if len(records) != 2 || records[0]["name"] != "orders/1" || records[1]["mode"] != "shared" {
		t.Fatalf("%s", r.out)
	}
	h := records[0]["holders"].([]any)[0].(map[string]any) //nolint:errcheck // a panic is a failure too
	if h["token"] != token || h["owner"] != owner || h["host"] != "web1" || h["pid"] != 77.0 || h["held_ms"] == nil {
		t.Errorf("%v", h)
	}
}

func TestShow(t *testing.T) {
	s := newShop(t)
	s.run("show", "L").wantOut(t, "L is free")
	s.run("show", "--json", "L").wantOut(t, `"holders":[]`)
	token, owner := s.hold("L")
	s.run("show", "L").wantOut(t, "L is held exclusive by", "web1/job[77], host web1, pid 77, owner "+owner+", token "+token+", for ")
	s.run("show", "--json", "L").wantOut(t, `"name":"L"`, `"token":"`+token+`"`)
	s.hold("S", "--slots", "3")
	s.run("show", "S").wantOut(t, "S is a semaphore, 1/3 permits are held by")
}

// A name may hold anything; a terminal is not steered by it.
func TestHostileNamesAreEscaped(t *testing.T) {
	s := newShop(t)
	name := "a\x1b[31m\n\u202eb\\"
	s.run("run", "--label", "x\x1b]0;\a", name, "--", "true").want(t, 64) // a label is for people, and refused
	s.hold(name, "--label", "x\u202ey")
	for _, args := range [][]string{{"ls"}, {"show", name}, {"run", "--wait", "0", name, "--", "true"}} {
		r := s.run(args...)
		if all := r.out + r.err; strings.ContainsAny(all, "\x1b\u202e\a") || !strings.Contains(all, `a\x1b[31m\n\u202eb\\`) {
			t.Errorf("%q", all)
		}
	}
	s.run("show", "--json", name).wantOut(t, `"name":"a\u001b[31m\n`)
}

func TestWatch(t *testing.T) {
	s := newShop(t)
	s.hold("before")
	plain, structured := s.start("watch"), s.start("watch", "--json", "L")
	plain.says("held     before")
	p := s.start("run", "--on-lost", "continue", "--grace", "1h", "L", "--", "sh", "-c", `trap "" TERM; echo $HOLDFAST_TOKEN up; exec sleep 300`)
	p.says("up")
	token := strings.Fields(p.out.String())[0]
	plain.says("acquired L")
	structured.says(`{"event":"acquired"`)
	structured.says(`"token":"` + token + `"`)
	s.run("break", "L", "--token", token, "--reason", "a test").want(t, 0)
	plain.says("broken   L")
	structured.says(`"broken":"a test`)
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGINT)
	p.wait()
	plain.says("released L")
	structured.says(`{"event":"released"`)
	for _, w := range []*process{plain, structured} {
		w.signal(syscall.SIGINT)
		w.wait().want(t, 0)
	}
	if strings.Contains(structured.out.String(), "before") {
		t.Error("the prefix was ignored")
	}
}

// A watch that was stopped says that it has missed something.
func TestWatchTellsGaps(t *testing.T) {
	s := newShop(t)
	s.hold("L")
	w := s.start("watch")
	w.says("held     L")
	w.signal(syscall.SIGSTOP)
	poll(t, "the stop", func() bool { return state(w.Process.Pid) == "T" })
	if err := exec.CommandContext(t.Context(), "sleep", "1.5").Run(); err != nil {
		t.Fatal(err)
	}
	w.signal(syscall.SIGCONT)
	w.says("gap of ")
	w.says("changes may be missing")
}

func TestBreak(t *testing.T) {
	s := newShop(t)
	s.run("break", "L", "--token", "1", "--reason", "x").want(t, 1)
	token, owner := s.hold("L")
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	other := strconv.FormatUint(n+256, 10)
	if r := s.run("break", "L", "--token", other, "--reason", "x"); r.code != 1 || !strings.Contains(r.out, "nothing was changed") {
		t.Errorf("%+v", r)
	}
	if r := s.run("break", "L", "--owner", owner, "--reason", "x", "--json"); r.code != 0 || !strings.Contains(r.out, `"result":"marked"`) {
		t.Errorf("%+v", r)
	}
	s.run("show", "L").wantOut(t, "broken: x (by ")
	s.run("ls").wantOut(t, "(broken)")
	token, _ = s.hold("M")
	s.run("break", "M", "--token", token, "--reason", "x", "--force").wantOut(t, "two may run")
	s.free("M")
}

func TestVersion(t *testing.T) {
	s := newShop(t)
	s.run("version").wantOut(t, "holdfast ", "go1.", "stores: ", "file, ", "memory, ", "redis, ", "redis+cluster, ", "rediss+sentinel")
	s.run("version", "--json").wantOut(t, `"stores":["`, `"memory","redis","redis+cluster","redis+sentinel","rediss"`)
}

func TestHelp(t *testing.T) {
	s := newShop(t)
	s.run("--help").wantOut(t, "run NAME -- COMMAND", "doctor")
	for _, verb := range []string{"run", "cron", "ls", "show", "watch", "break", "acquire", "renew", "release", "check", "doctor", "version", "completion"} {
		s.run(verb, "--help").wantOut(t, "Usage: holdfast "+verb, "--json")
	}
	s.run("run", "--help").wantOut(t, "--on-lost term|kill|continue|signal:NAME", "--grace time", "default 10s")
}

func TestDoctor(t *testing.T) {
	s := newShop(t)
	s.run("doctor").wantOut(t, "store     file", "class     B", "this host only", "has       fencing tokens", "Proof", "rules hold")
	r := s.run("doctor", "--json")
	var d struct {
		OK   bool
		Laws []struct {
			ID string
			OK bool
		}
	}
	if err := json.Unmarshal([]byte(r.out), &d); err != nil || !d.OK || len(d.Laws) < 5 {
		t.Errorf("%v %s", err, r.out)
	}
}
