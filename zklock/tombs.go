package zklock

import "github.com/holdfast-go/holdfast/driver"

// tombs remember for some seconds which owners were abandoned. That is enough to
// refuse their late attempts: all of an owner's requests come from this client,
// and servers handle those of a session in the order in which they were sent. All
// is under store.mu.
type tombs struct {
	dead map[driver.Owner]bool
	line []tomb // oldest first
}

type tomb struct {
	owner driver.Owner
	until driver.Instant
}

func (t *tombs) add(owner driver.Owner) {
	t.sweep()
	if !t.dead[owner] {
		t.dead[owner] = true
		t.line = append(t.line, tomb{owner, driver.Now().Add(settle)})
	}
}

func (t *tombs) has(owner driver.Owner) bool {
	t.sweep()
	return t.dead[owner]
}

func (t *tombs) sweep() {
	if len(t.line) == 0 {
		return
	}
	now := driver.Now()
	for len(t.line) > 0 && t.line[0].until < now {
		delete(t.dead, t.line[0].owner)
		t.line = t.line[1:]
	}
}
