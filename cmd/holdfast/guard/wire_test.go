package guard

import (
	"syscall"
	"testing"
)

// What the guard said last is heard, also if it had not read all before it ended.
func TestLastWordsAreHeard(t *testing.T) {
	pair, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(pair[0]) }()
	if err := send(pair[0], message{kind: kindSignal}); err != nil {
		t.Fatal(err)
	}
	if err := send(pair[1], message{kind: kindGone}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Close(pair[1]); err != nil { // with the signal unread
		t.Fatal(err)
	}
	buf := make([]byte, maxMessage)
	if m, _, ok := receive(pair[0], buf); !ok || m.kind != kindGone {
		t.Errorf("heard %v, %v", m, ok)
	}
	if m, _, ok := receive(pair[0], buf); ok {
		t.Errorf("heard %v after the end", m)
	}
}
