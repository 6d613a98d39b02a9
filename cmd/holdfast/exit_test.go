package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// B106: the child's exact status comes through, death by a signal is 128+n,
// and what cannot be run gives the shell's codes.
func TestExitStatusOfTheCommand(t *testing.T) {
	s := newShop(t)
	plain := filepath.Join(s.dir, "plain")
	script := filepath.Join(s.dir, "script")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("exit $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command []string
		code    int
		text    string
	}{
		{[]string{"sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143, ""},
		{[]string{"sh", "-c", "kill -HUP $$"}, 129, ""},
		{[]string{"no-such-program"}, 127, "command not found"},
		{[]string{"/no/such/program"}, 127, "command not found"},
		{[]string{plain}, 126, "cannot be run"},
		{[]string{s.dir}, 126, "cannot be run"},
		{[]string{script, "9"}, 9, ""}, // no first line: sh runs it
	} {
		r := s.run(append([]string{"run", "L", "--"}, c.command...)...)
		r.want(t, c.code, c.text)
		if c.text == "" && r.err != "" {
			t.Errorf("%v: stderr %q", c.command, r.err)
		}
	}
	s.free("L")
	s.noneLeft()
}

// B113: every status from 0 to 255 is the command's, silently.
func TestEveryExitStatus(t *testing.T) {
	s := newShop(t)
	for code := range 256 {
		r := s.run("run", "L", "--", "sh", "-c", fmt.Sprintf("exit %d", code))
		if r.code != code || r.err != "" || r.out != "" {
			t.Fatalf("exit %d: %+v", code, r)
		}
	}
}

// B113: the three streams are the command's own.
func TestStreamsPassThrough(t *testing.T) {
	s := newShop(t)
	cmd := s.command("run", "L", "--", "sh", "-c", "cat; echo no >&2")
	cmd.Stdin = strings.NewReader("in\x00put\n")
	r := s.launch(cmd).wait()
	if r.code != 0 || r.out != "in\x00put\n" || r.err != "no\n" {
		t.Errorf("%+v", r)
	}
}

func TestArgumentsPassThrough(t *testing.T) {
	s := newShop(t)
	r := s.run("run", "L", "--", "printf", "<%s>", "", "a b", "--", "--wait", "$HOME", "\xff")
	if r.code != 0 || r.out != "<><a b><--><--wait><$HOME><\xff>" {
		t.Errorf("%+v", r)
	}
	r = s.run("run", "--shell", "L", "--", "echo $((1+1)) $1", "x")
	if r.code != 0 || r.out != "2 x\n" {
		t.Errorf("%+v", r)
	}
}

func TestEnvironmentOfTheCommand(t *testing.T) {
	s := newShop(t)
	r := s.run("run", "--prefix", "app", "orders/42", "--", "sh", "-c", `echo "$HOLDFAST_NAME $HOLDFAST_TOKEN $HOLDFAST_OWNER $HOLDFAST_STORE $HOLDFAST_TEST"`)
	f := strings.Fields(r.out)
	if r.code != 0 || len(f) != 5 {
		t.Fatalf("%+v", r)
	}
	if f[0] != "orders/42" || len(f[1]) < 10 || len(f[2]) != 32 || f[3] != s.url+"?prefix=app" || "HOLDFAST_TEST="+f[4] != s.mark {
		t.Errorf("%q", f)
	}
	again := s.run("run", "--prefix", "app", "orders/42", "--", "sh", "-c", `echo $HOLDFAST_TOKEN`)
	if next := strings.TrimSpace(again.out); len(next) < len(f[1]) || len(next) == len(f[1]) && next <= f[1] {
		t.Errorf("token %s after %s", next, f[1])
	}
}

// The tool's own statuses.
func TestOwnExitStatuses(t *testing.T) {
	s := newShop(t)
	holder := s.start("run", "--label", "web1/job[77]", "L", "--", "sh", "-c", "echo up; exec sleep 300")
	holder.says("up")
	for _, c := range []struct {
		args  []string
		code  int
		texts []string
	}{
		{[]string{"run", "--wait", "0", "L", "--", "true"}, 75, []string{"L is held by web1/job[77]", "host web1", "pid 77", "owner ", "for "}},
		{[]string{"run", "--wait", "0", "--on-busy", "skip", "L", "--", "true"}, 0, []string{"held by web1", "skipped"}},
		{[]string{"run", "--wait", "0", "--on-busy", "skip", "--quiet", "L", "--", "true"}, 0, nil},
		{[]string{"run", "--wait", "0", "--exit-busy", "3", "L", "--", "true"}, 3, []string{"held by"}},
		{[]string{"run", "--wait", "50ms", "L", "--", "true"}, 76, []string{"waited 50ms in vain", "held by"}},
		{[]string{"run", "--wait", "50ms", "--on-busy", "skip", "L", "--", "true"}, 0, []string{"waited 50ms in vain", "held by", "skipped"}},
		{[]string{"cron", "--one-host", "--wait", "50ms", "L", "--", "true"}, 0, []string{"held by", "skipped"}},
		{[]string{"run", "--tries", "2", "L", "--", "true"}, 75, []string{"held by"}},
		{[]string{"run", "--wait", "0", "--json", "L", "--", "true"}, 75, []string{`"event":"busy"`, `"exit":75`, `"host":"web1"`, `"pid":77`, `"token":"`}},
		{[]string{"cron", "--one-host", "L", "--", "true"}, 0, []string{"skipped"}},
		{[]string{"run", "--shared", "--wait", "0", "L", "--", "true"}, 75, []string{"held by"}},
	} {
		r := s.run(c.args...)
		r.want(t, c.code, c.texts...)
		if c.texts == nil && r.err != "" {
			t.Errorf("%v: stderr %q", c.args, r.err)
		}
	}
}

func TestUsageErrorsAreToldAllAtOnce(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct {
		args  []string
		texts []string
	}{
		{nil, []string{"Usage: holdfast"}},
		{[]string{"frobnicate"}, []string{`unknown command "frobnicate"`}},
		{
			[]string{"run", "--ttl", "1ms", "--wait", "soon", "--nonsense", "--slots", "0", "--on-lost", "cry", "--grace", "5", ""},
			[]string{
				`--ttl "1ms": must be from 200ms to 24h`, `unknown flag --nonsense`, `--wait "soon"`, "--nonsense", `--slots "0"`, `--on-lost "cry"`,
				`--grace "5": a unit is missing, such as 5s`, "the command is missing", "the name is empty",
			},
		},
		{[]string{"run", "L", "echo", "hi"}, []string{"put -- between the name and the command: holdfast run L -- echo hi"}},
		{[]string{"run", "--", "echo"}, []string{"the NAME is missing"}},
		{[]string{"run", "L", "M", "--", "echo"}, []string{`too many arguments: "M"`}},
		{[]string{"run", "L", "--"}, []string{"the command is missing"}},
		{[]string{"run", "--shared", "--slots", "2", "L", "--", "true"}, []string{"either a lock or a semaphore"}},
		{[]string{"run", strings.Repeat("x", 513), "--", "true"}, []string{"513 bytes"}},
		{[]string{"run", "--store", "nosuch://u:secret@h", "L", "--", "true"}, []string{`unknown scheme "nosuch"`, "file"}},
		{[]string{"cron", "L", "--", "true"}, []string{"--one-host"}},
		{[]string{"break", "L"}, []string{"--token or --owner is missing", "--reason is missing"}},
		{[]string{"show"}, []string{"the NAME is missing"}},
		{[]string{"acquire", "L"}, []string{"the file store has no handles"}},
		{[]string{"release", "x"}, []string{"the file store has no handles"}},
		{[]string{"completion", "tcsh"}, []string{"bash, zsh or fish"}},
	} {
		r := s.run(c.args...)
		r.want(t, 64, c.texts...)
		if strings.Contains(r.err, "secret") {
			t.Errorf("a secret is shown: %s", r.err)
		}
	}
}
