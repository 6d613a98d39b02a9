package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/zktest"
)

// newZooKeeperShop is a shop whose store is a ZooKeeper server of its own.
func newZooKeeperShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	server, err := zktest.Start(zktest.Debian)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	s.url = strings.Replace(server.URL(), "//", "//shop:hunter2@", 1)
	return s
}

func TestZooKeeperRun(t *testing.T) {
	s := newZooKeeperShop(t)
	s.run("show", "L").wantOut(t, "L is free")
	holder := s.start("run", "--label", "web1", "--ttl", "3s", "L", "--", "sh", "-c", "echo $HOLDFAST_TOKEN $HOLDFAST_STORE; sleep 60")
	poll(t, "the holder", func() bool { return strings.Contains(s.run("show", "L").out, "web1") })
	s.run("run", "--wait", "0", "L", "--", "true").want(t, 75, "held by web1")
	s.run("run", "--wait", "100ms", "L", "--", "true").want(t, 76, "held by web1")
	s.run("cron", "--wait", "0", "L", "--", "true").want(t, 0)
	s.run("ls").wantOut(t, "L", "web1")
	waiter := s.start("run", "L", "--", "echo", "ran")
	poll(t, "the waiter", func() bool { return strings.Contains(s.run("show", "L").out, "waiting, first in line first:") })
	_ = holder.Process.Kill()
	r := waiter.wait()
	r.want(t, 0)
	if !strings.Contains(r.out, "ran") {
		t.Errorf("%q", r.out)
	}
	if out := holder.wait().out; strings.Contains(out, "hunter2") {
		t.Errorf("a secret in %q", out)
	}
	s.run("show", "L").wantOut(t, "L is free")
	s.run("acquire", "L").want(t, 64, "handles")
}

// --ttl makes the session: a holder that was killed costs so much, and no more
// than a third of it beside.
func TestZooKeeperTTL(t *testing.T) {
	s := newZooKeeperShop(t)
	holder := s.start("run", "--ttl", "3s", "L", "--", "sleep", "60")
	poll(t, "the holder", func() bool { return !strings.Contains(s.run("show", "L").out, "is free") })
	_ = holder.Process.Kill()
	killed := time.Now()
	s.run("run", "--wait", "60s", "L", "--", "true").want(t, 0)
	if took := time.Since(killed); took > 25*time.Second {
		t.Errorf("free %v after the holder was killed", took)
	}
	s.run("run", "--ttl", "1h", "L", "--", "true").want(t, 64, "at most")
}
