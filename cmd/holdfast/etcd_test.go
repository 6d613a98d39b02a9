package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/etcdtest"
)

// newEtcdShop is a shop whose store is an etcd server of its own.
func newEtcdShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	server, err := etcdtest.Start(etcdtest.Default, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	s.url = server.URL()
	return s
}

func TestEtcdRun(t *testing.T) {
	s := newEtcdShop(t)
	s.run("show", "L").wantOut(t, "L is free")
	holder := s.start("run", "--label", "web1", "--ttl", "3s", "L", "--", "sleep", "60")
	poll(t, "the holder", func() bool { return strings.Contains(s.run("show", "L").out, "web1") })
	s.run("run", "--wait", "0", "L", "--", "true").want(t, 75, "held by web1")
	s.run("run", "--wait", "100ms", "L", "--", "true").want(t, 76, "held by web1")
	s.run("ls").wantOut(t, "L", "web1")
	waiter := s.start("run", "L", "--", "echo", "ran")
	poll(t, "the waiter", func() bool { return strings.Contains(s.run("show", "L").out, "waiting, first in line first:") })
	_ = holder.Process.Kill()
	r := waiter.wait()
	r.want(t, 0)
	if !strings.Contains(r.out, "ran") {
		t.Errorf("%q", r.out)
	}
	s.run("show", "L").wantOut(t, "L is free")
}

// The store keeps what cron holds longer than its job, and a handle goes from one
// process to the next.
func TestEtcdKeeps(t *testing.T) {
	s := newEtcdShop(t)
	s.run("cron", "--min-hold", "1h", "J", "--", "echo", "ran").wantOut(t, "ran")
	s.run("cron", "J", "--", "echo", "ran").want(t, 0, "(released)")
	_, rest, _ := strings.Cut(s.run("acquire", "L", "--ttl", "1h").out, "HOLDFAST_HANDLE='")
	handle, _, _ := strings.Cut(rest, "'")
	s.run("run", "--wait", "0", "L", "--", "true").want(t, 75, "held by")
	s.run("renew", handle).want(t, 0)
	s.run("release", handle).want(t, 0)
	s.run("check", handle).want(t, 77)
	s.free("L")
}
