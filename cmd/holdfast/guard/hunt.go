package guard

import (
	"errors"
	"syscall"
)

// The pauses between looking for what is left to kill. While new processes turn
// up they stay short, or a tree that forks would win; a tree that stays as it
// is, as it cannot be killed, is not worth the processor.
const (
	rescanMin  = int64(1e6)
	rescanBusy = int64(10e6)
	rescanMax  = int64(100e6)
)

// stuckAfter is after how long what is left is told of, and how often at most.
const stuckAfter = int64(1e9)

// A hunt kills all below a process, again and again until none is left.
type hunt struct {
	root  int
	since uint64 // children of root that started earlier are spared, with what is below them
	home  int    // the wrapper's process group

	began  int64
	pause  int64 // before the next sweep
	seen   map[int]uint64
	told   string
	toldAt int64
}

func newHunt(root int, since uint64, home int) *hunt {
	return &hunt{root: root, since: since, home: home, began: Now(), pause: rescanMin}
}

// sweep kills what is there now, and tells what cannot be killed. It returns
// all that it found, also what only waits to be reaped.
func (h *hunt) sweep(stuck func(names string)) []process {
	all := look()
	found := all.below(h.root, h.since)
	left := alive(found)
	refused := h.kill(all, left)
	now := Now()
	if now-h.began > stuckAfter {
		refused = left
	}
	text := names(refused)
	if text != "" && text != h.told && (h.told == "" || now-h.toldAt > stuckAfter) {
		h.told, h.toldAt = text, now
		stuck(text)
	}
	if h.news(left) {
		h.pause = min(2*h.pause, rescanBusy)
	} else {
		h.pause = min(2*h.pause, rescanMax)
	}
	return found
}

// news tells whether a process is left that the last sweep did not find.
func (h *hunt) news(left []process) bool {
	seen, news := make(map[int]uint64, len(left)), false
	for _, p := range left {
		news = news || h.seen[p.pid] != p.start
		seen[p.pid] = p.start
	}
	h.seen = seen
	return news
}

// kill kills processes, and the groups that they are in: a process that forks
// and exits may be gone whenever we look, but no fork escapes the signal to its
// group. It returns those that it may not kill.
func (h *hunt) kill(all snapshot, left []process) []process {
	for _, group := range h.groups(all, left) {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	return signalAll(left, syscall.SIGKILL)
}

// groups lists the process groups of processes that may be killed as a whole:
// no other than the tree is known to be in them.
func (h *hunt) groups(all snapshot, left []process) []int {
	first, err := syscall.Getpgid(1)
	if err != nil {
		first = 1
	}
	spared := map[int]bool{h.home: true, syscall.Getpgrp(): true, first: true}
	for _, p := range all {
		if p.state != 'Z' && all.outside(p, h.root, h.since) {
			spared[p.group] = true
		}
	}
	var groups []int
	for _, p := range left {
		if p.group > 1 && !spared[p.group] { // 1 would be all processes that there are
			spared[p.group] = true // once is enough
			groups = append(groups, p.group)
		}
	}
	return groups
}

// signalAll signals every process and returns those that it may not signal.
func signalAll(ps []process, sigs ...syscall.Signal) (refused []process) {
	for _, p := range ps {
		for _, sig := range sigs {
			if errors.Is(p.signal(sig), syscall.EPERM) {
				refused = append(refused, p)
				break
			}
		}
	}
	return refused
}
