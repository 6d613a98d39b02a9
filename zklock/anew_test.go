package zklock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock/internal/zk"
)

// The servers delete a name's node when it was left for a while, and the numbers
// of its children begin anew in the next one: what a client knew of the former
// node counts no more.
func TestNameMadeAnew(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b := server.open(t), server.open(t)
	a.free(t, a.hold(t, t.Name()))
	l, err := a.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replies, err := l.zk.Do(t.Context(), zk.Delete(a.dir(nameOf(t.Name()).Key)))
	if err != nil || replies[0].Err != nil {
		t.Fatal(err, replies)
	}
	h := b.hold(t, t.Name())
	if _, status := a.try(t, t.Name()); status != driver.Held {
		t.Errorf("a second holder beside the first: status %d", status)
	}
	b.free(t, h)
}

// So it is if somebody wrote into the node before: that is all that its watch
// tells.
func TestNameWrittenAndMadeAnew(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b := server.open(t), server.open(t)
	a.free(t, a.hold(t, t.Name()))
	l, err := b.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := nameOf(t.Name())
	dir := b.dir(name.Key)
	replies, err := l.zk.Do(t.Context(), zk.SetData(dir, named(&name), -1), zk.Delete(dir))
	if err != nil || replies[0].Err != nil || replies[1].Err != nil {
		t.Fatal(err, replies)
	}
	h := b.hold(t, t.Name())
	if _, status := a.try(t, t.Name()); status != driver.Held {
		t.Errorf("a second holder beside the first: status %d", status)
	}
	b.free(t, h)
}
