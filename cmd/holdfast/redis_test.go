package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// newRedisShop is a shop whose store is a Redis server of its own, which asks
// for a password.
func newRedisShop(t *testing.T) (*shop, *redistest.Server) {
	t.Helper()
	s := newShop(t)
	server, err := redistest.Start(redistest.Default, "--appendonly", "yes", "--appendfsync", "always",
		"--user", "shop", "on", ">hunter2", "~*", "&*", "+@all")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	s.url = "redis://shop:hunter2@" + server.Addr()
	return s, server
}

func TestRedisRun(t *testing.T) {
	s, _ := newRedisShop(t)
	s.run("show", "L").wantOut(t, "L is free")
	token, owner := s.hold("L")
	s.run("run", "--wait", "0", "L", "--", "true").want(t, 75, "held by web1/job[77]")
	s.run("run", "--wait", "100ms", "L", "--", "true").want(t, 76, "held by web1/job[77]")
	s.run("ls").wantOut(t, "L", "web1/job[77]")
	s.run("show", "--json", "L").wantOut(t, `"token":"`+token+`"`, owner)
	waiter := s.start("run", "L", "--", "sh", "-c", "echo ran; echo $HOLDFAST_TOKEN $HOLDFAST_STORE")
	poll(t, "the waiter", func() bool { return strings.Contains(s.run("show", "L").out, "waiting, first in line first:") })
	watch := s.start("watch")
	watch.says("held     L")
	s.run("break", "L", "--token", token, "--reason", "x").want(t, 0)
	watch.says("released L")
	r := waiter.wait()
	r.want(t, 0)
	lines := strings.Fields(r.out)
	if len(lines) != 3 || lines[0] != "ran" || strings.Contains(r.out, "hunter2") {
		t.Fatalf("%q", r.out)
	}
	if was, now := number(t, token), number(t, lines[1]); now <= was {
		t.Errorf("token %d after %d", now, was)
	}
	s.free("L")
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The commands for scripts carry a lease from one process to the next.
func TestRedisHandles(t *testing.T) {
	s, server := newRedisShop(t)
	acquired := s.run("acquire", "--ttl", "1h", "L")
	acquired.want(t, 0)
	handle, ok := strings.CutPrefix(strings.TrimSpace(acquired.out), "HOLDFAST_HANDLE=")
	for line := range strings.Lines(acquired.out) {
		if h, cut := strings.CutPrefix(strings.TrimSpace(line), "HOLDFAST_HANDLE="); cut {
			handle, ok = strings.Trim(h, "'"), true
		}
	}
	if !ok {
		t.Fatalf("no handle: %q", acquired.out)
	}
	s.run("acquire", "--wait", "0", "L").want(t, 75, "held by")
	s.run("check", handle).want(t, 0)
	s.run("renew", "--ttl", "2h", handle).want(t, 0)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	s.run("check", handle).want(t, 0)
	s.run("release", handle).want(t, 0)
	if r := s.run("check", handle); r.code == 0 {
		t.Errorf("after the release: %+v", r)
	}
	if r := s.run("renew", handle); r.code == 0 {
		t.Errorf("after the release: %+v", r)
	}
	s.free("L")
}

// The wait of a script ends as that of a run does, when the server is gone.
func TestRedisAcquireServerGone(t *testing.T) {
	s, server := newRedisShop(t)
	s.run("acquire", "L").want(t, 0)
	waiter := s.start("acquire", "L")
	poll(t, "the waiter", func() bool { return strings.Contains(s.run("show", "L").out, "waiting, first in line first:") })
	server.Kill()
	waiter.wait().want(t, 69, "waiting for the store", "the store does not answer for 10s")
}

// A job that many hosts start at once runs once, and no host needs to say that
// it is the only one.
func TestRedisCron(t *testing.T) {
	s, _ := newRedisShop(t)
	out := filepath.Join(s.dir, "out")
	var wg sync.WaitGroup
	var failed atomic.Int32
	for i := range 20 {
		cmd := s.command("cron", "--label", fmt.Sprintf("host%d/1/job", i), "nightly", "--", "sh", "-c", "echo ran >>"+out)
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if ran, err := os.ReadFile(out); err != nil || string(ran) != "ran\n" || failed.Load() > 0 {
		t.Errorf("it ran %q, %v; %d failed", ran, err, failed.Load())
	}
}

func TestRedisDoctor(t *testing.T) {
	s, server := newRedisShop(t)
	s.run("doctor").wantOut(t, "store     redis", "class     C", "waiters in order of arrival", "rules hold")
	if _, err := server.Do("CONFIG", "SET", "appendfsync", "everysec", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"); err != nil {
		t.Fatal(err)
	}
	s.run("doctor").wantOut(t, "class     D", "appendfsync is everysec", "maxmemory-policy is allkeys-lru", "unsafe settings")
	r := s.run("run", "L", "--", "true")
	if strings.Contains(r.out+r.err, "hunter2") {
		t.Errorf("a secret is shown: %+v", r)
	}
}

// What somebody else has put under a name is told by every command, and stays.
func TestRedisForeignKey(t *testing.T) {
	s, server := newRedisShop(t)
	s.hold("L")
	keys, err := server.Do("KEYS", "hf:*:L")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"DEL", keys}, {"HSET", keys, "f", "theirs"}} {
		if _, err := server.Do(words...); err != nil {
			t.Fatal(err)
		}
	}
	owner := strings.Repeat("8", 32)
	for _, args := range [][]string{
		{"run", "L", "--", "true"}, {"acquire", "L"}, {"show", "L"}, {"break", "L", "--owner", owner, "--reason", "none"},
	} {
		s.run(args...).want(t, 69, keys+", or a key that goes with it, holds something that is not ours")
	}
	s.run("ls").want(t, 0)
	if value, err := server.Do("HGET", keys, "f"); value != "theirs" {
		t.Errorf("%q, %v", value, err)
	}
}

// When the server is gone for longer than the TTL the command is dead before its
// lease can have ended.
func TestRedisServerGone(t *testing.T) {
	s, server := newRedisShop(t)
	p := s.start("run", "--ttl", "3s", "--grace", "200ms", "L", "--", "sh", "-c", "echo up; exec sleep 300")
	p.says("up")
	_, command := p.guardOf()
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	began := time.Now()
	poll(t, "the command's end", func() bool { return gone(command) })
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it ended after %v", took)
	}
	server.Signal(syscall.SIGCONT)
	p.wait().want(t, 77)
	s.free("L")
}

// B043, law L1.8: a wrapper that is stopped for longer than its lease lives does not
// keep its command, and knows when it goes on.
func TestRedisStoppedWrapper(t *testing.T) {
	s, _ := newRedisShop(t)
	p := s.start("run", "--ttl", "2s", "--grace", "200ms", "L", "--", "sh", "-c", "echo up; exec sleep 300")
	p.says("up")
	_, command := p.guardOf()
	p.signal(syscall.SIGSTOP)
	poll(t, "the command's end", func() bool { return gone(command) })
	s.run("run", "L", "--", "true").want(t, 0)
	p.signal(syscall.SIGCONT)
	p.wait().want(t, 77)
	s.noneLeft()
}

// A wrapper that is killed takes its command with it, and the name is free when its
// lease has ended.
func TestRedisKilledWrapper(t *testing.T) {
	s, _ := newRedisShop(t)
	p := s.start("run", "--ttl", "1s", "L", "--", "sh", "-c", "echo up; exec sleep 300")
	p.says("up")
	guard, command := p.guardOf()
	p.signal(syscall.SIGKILL)
	poll(t, "the end of all", func() bool { return gone(guard) && gone(command) })
	s.run("run", "L", "--", "true").want(t, 0)
}

// The same commands do on a cluster.
func TestRedisCluster(t *testing.T) {
	s := newShop(t)
	c, err := redistest.StartCluster(redistest.Default, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Remove)
	s.url = c.URL()
	for i := range 5 {
		s.hold("L" + strconv.Itoa(i))
	}
	s.run("run", "--wait", "0", "L3", "--", "true").want(t, 75, "held by")
	r := s.run("ls")
	r.wantOut(t, "L0", "L1", "L2", "L3", "L4")
	s.run("doctor").wantOut(t, "store     redis-cluster", "class     D", "appendonly is off", "rules hold")
}

// A store that asks for a password may have it from a file or the environment.
func TestRedisPasswords(t *testing.T) {
	s, server := newRedisShop(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.url = "redis://shop@" + server.Addr() + "?password-file=" + file
	s.free("L")
	s.url = "redis://shop@" + server.Addr()
	s.run("run", "L", "--", "true").want(t, 69)
	cmd := s.command("run", "L", "--", "true")
	cmd.Env = append(cmd.Env, "HOLDFAST_REDIS_PASSWORD=hunter2")
	s.launch(cmd).wait().want(t, 0)
}

// A server that refuses every lock is told once, by its own words, and not rule by rule.
func TestRedisDoctorIsRefused(t *testing.T) {
	s, server := newRedisShop(t)
	for user, rights := range map[string]string{"reader": "+@all -@write", "blind": "+ping +hello"} {
		words := "ACL SETUSER " + user + " reset on >hunter2 ~* &* " + rights
		if _, err := server.Do(strings.Fields(words)...); err != nil {
			t.Fatal(err)
		}
		s.url = "redis://" + user + ":hunter2@" + server.Addr()
		refusedOnce(t, s.run("doctor"), "denied by the store")
	}
	master, err := redistest.Start(redistest.Default)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(master.Remove)
	replica, err := redistest.StartReplica(redistest.Default, master)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replica.Remove)
	s.url = replica.URL()
	r := s.run("doctor")
	refusedOnce(t, r, "READONLY")
	if !strings.Contains(r.out, "unsafe    the server is a replica") {
		t.Errorf("%+v", r)
	}
	s.run("doctor", "--json").want(t, 69, `"exit":69`, "READONLY")
}

func refusedOnce(t *testing.T, r result, cause string) {
	t.Helper()
	r.want(t, 69, cause)
	if strings.Count(r.err, "\n") != 1 || strings.Contains(r.out, "Proof") {
		t.Errorf("%+v", r)
	}
}

// What becomes unsafe while it looks is told too.
func TestRedisDoctorSeesAClockThatIsSet(t *testing.T) {
	s := newShop(t)
	clock, err := redistest.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clock.Remove)
	server, err := clock.Start(redistest.Default, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	s.url = server.URL()
	p := s.start("doctor")
	p.says("Proof")
	if err := clock.Set(-time.Minute); err != nil {
		t.Fatal(err)
	}
	r := p.wait()
	r.wantOut(t, "unsafe    the server's clock was set back", "; unsafe settings: 1, see above")
}

// A warning is for people at a terminal, and for programs that read events, but not for
// those to whom cron mails what a job says. A candidate begins seldom.
func TestRedisWarnings(t *testing.T) {
	s := newShop(t)
	server, err := redistest.Start(redistest.Default)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	s.url = server.URL()
	const warning = "appendonly is off"
	for _, verb := range []string{"run", "cron"} {
		if r := s.run(verb, "L"+verb, "--", "true"); r.code != 0 || r.out+r.err != "" {
			t.Errorf("%s: %+v", verb, r)
		}
	}
	s.run("run", "--json", "L", "--", "true").want(t, 0, `"event":"warning"`, warning)
	s.run("elect", "L", "--", "true").want(t, 0, warning)
	if r := s.run("elect", "--quiet", "L", "--", "true"); r.err != "" {
		t.Errorf("elect --quiet: %+v", r)
	}
	term := s.onTerminal("sh", "-c", `$HOLDFAST run L -- true; echo status $?`)
	term.shows(warning)
	term.shows("status 0")
	term.wait()
}

// A command is told the store without its password, and with nothing in its place.
func TestRedisStoreIsShown(t *testing.T) {
	s, server := newRedisShop(t)
	if _, err := server.Do("CONFIG", "SET", "requirepass", "hunter2"); err != nil {
		t.Fatal(err)
	}
	s.url = "redis://:hunter2@" + server.Addr()
	r := s.run("run", "L", "--", "sh", "-c", "echo $HOLDFAST_STORE")
	if r.want(t, 0); r.out != "redis://"+server.Addr()+"\n" {
		t.Errorf("%+v", r)
	}
}
