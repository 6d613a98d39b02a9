package testserver_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A server that has ended by itself is started again.
func TestBeginAgain(t *testing.T) {
	p := &testserver.Process{Log: filepath.Join(t.TempDir(), "log")}
	defer p.Kill()
	for range 2 {
		if err := p.Begin(exec.CommandContext(t.Context(), "true")); err != nil {
			t.Fatal(err)
		}
		if err := testserver.Until("its end", func() bool { return p.Signal(0) != nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Begin(exec.CommandContext(t.Context(), "sleep", "300")); err != nil {
		t.Fatal(err)
	}
	if err := p.Await(func() bool { return true }); errors.Is(err, testserver.ErrEnded) {
		t.Errorf("not started again: %v", err)
	}
}
