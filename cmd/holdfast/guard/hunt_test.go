package guard

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A process that no look has found yet dies with its group.
func TestKillReachesTheGroup(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 300 & echo $!; exec sleep 301")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() }()
	line := make([]byte, 20)
	n, _ := out.Read(line)
	unseen, err := strconv.Atoi(string(bytes.TrimSpace(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	all := look()
	delete(all, unseen)
	newHunt(os.Getpid(), 0, syscall.Getpgrp()).kill(all, []process{all[cmd.Process.Pid]})
	poll(t, "the end of both", func() bool {
		p, ok := readProcess(unseen)
		q, ok2 := readProcess(cmd.Process.Pid)
		return (!ok || p.state == 'Z') && (!ok2 || q.state == 'Z')
	})
}

// No group is killed that others are in.
func TestGroupsOfOthersAreSpared(t *testing.T) {
	const wrapper, guard = 10000, 10001
	all := snapshot{}
	for _, p := range []process{
		{pid: 1, parent: 0, group: 1},
		{pid: wrapper, parent: 1, group: wrapper},
		{pid: guard, parent: wrapper, group: guard},
		{pid: 10002, parent: guard, group: 10002},
		{pid: 10003, parent: 10002, group: 10002},
		{pid: 10004, parent: 10002, group: wrapper},
		{pid: 10005, parent: 10002, group: guard},
		{pid: 10006, parent: 10002, group: 1},
		{pid: 10007, parent: 10002, group: 0},
		{pid: 10008, parent: 10003, group: 20000}, // where a shell is
		{pid: 20000, parent: 1, group: 20000},
		{pid: 10009, parent: 10003, group: 10009}, // where one is whose parent is gone
		{pid: 20001, parent: 29999, group: 10009},
		{pid: 10010, parent: 10003, group: 20002}, // where only a dead one is
		{pid: 20002, parent: 1, group: 20002, state: 'Z'},
	} {
		all[p.pid] = p
	}
	got := newHunt(guard, 0, wrapper).groups(all, all.below(guard, 0))
	if want := []int{10002, 10009, 20002}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What the wrapper had started before the guard is no business of ours, nor what
// that starts later.
func TestEarlierChildrenAreSpared(t *testing.T) {
	all := snapshot{
		10: {pid: 10, parent: 1, start: 1},
		11: {pid: 11, parent: 10, start: 5},
		12: {pid: 12, parent: 11, start: 50},
		13: {pid: 13, parent: 10, start: 30},
		14: {pid: 14, parent: 13, start: 40},
	}
	if got := all.below(10, 20); len(got) != 2 || got[0].pid != 13 || got[1].pid != 14 {
		t.Error(got)
	}
	for pid, want := range map[int]bool{11: true, 12: true, 13: false, 14: false} {
		if all.outside(all[pid], 10, 20) != want {
			t.Errorf("outside(%d) is %v", pid, !want)
		}
	}
}

// chain is a line of sh whose processes fork and exit, one after the other.
const chain = `trap "" TERM; h() { sleep 0.005; h & }; h & `

func TestKillOutrunsAChain(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{}, chain+"echo up > "+path+"; sleep 300")
	poll(t, "the command", has("up"))
	r.End(0, Now())
	r.until(Gone)
	if pids := r.tree(); len(pids) > 0 {
		t.Errorf("alive after Gone: %v", pids)
	}
}

func TestTakeOverOutrunsAChain(t *testing.T) {
	path, has := file(t)
	r := start(t, Order{}, chain+"echo up > "+path+"; sleep 300")
	poll(t, "the command", has("up"))
	r.Kill()
	for range r.reports {
	}
	r.Close()
	r.TakeOver(func(string) {})
	if pids := r.tree(); len(pids) > 0 {
		t.Errorf("alive: %v", pids)
	}
}

// A message does not grow with the tree.
func TestNamesAreBounded(t *testing.T) {
	text := names(make([]process, 10000))
	if !strings.HasSuffix(text, " and 9980 more") || len(text) > 1000 {
		t.Error(text)
	}
}

// A wrapper that does not listen does not hold the kill up.
func TestStuckIsNotWaitedFor(t *testing.T) {
	pair, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(pair[0]); _ = syscall.Close(pair[1]) }()
	g := &guard{conn: pair[0]}
	for range 10000 {
		g.tell(message{kind: kindStuck, text: strings.Repeat("x", 1000)})
	}
}
