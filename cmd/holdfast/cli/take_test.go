package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A wait is given up on a store that is silent, whatever else the event says,
// and on no other.
func TestSilentStoreEndsTheWait(t *testing.T) {
	client, err := holdfast.Open(t.Context(), "test://", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	errOut, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer errOut.Close()
	h := &held{client: client}
	w := &waitTeller{a: &app{stderr: errOut}}
	silent := &holdfast.Error{Op: "acquire", Kind: holdfast.ErrUnavailable, Err: errors.New("refused")}
	for _, c := range []struct {
		event holdfast.Event
		want  bool
	}{
		{holdfast.Event{Err: silent}, true},
		{holdfast.Event{Err: silent, Holder: &holdfast.Holder{}}, true},
		{holdfast.Event{Holder: &holdfast.Holder{}}, false},
		{holdfast.Event{Err: errors.New("other")}, false},
	} {
		c.event.Kind, c.event.Took = holdfast.EventLongWait, 10*time.Second
		var why error
		h.observe(&c.event, w, func(cause error) { why = cause })
		if got := errors.Is(why, errStoreSilent); got != c.want {
			t.Errorf("%+v: %v", c.event, why)
		}
	}
	if b, err := os.ReadFile(errOut.Name()); err != nil || strings.Count(string(b), "still waiting") != 2 {
		t.Errorf("%s %v", b, err)
	}
}

// A wait that was called off by a signal before anybody told who holds the name
// claims nothing of a holder.
func TestInterruptedBeforeTheStoreAnswered(t *testing.T) {
	errOut, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer errOut.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalError(syscall.SIGINT))
	a := &app{stderr: errOut}
	if code := a.refused(&runOptions{name: "L"}, calledOff(ctx, ctx.Err())); code != 130 {
		t.Errorf("exit status %d", code)
	}
	if b, err := os.ReadFile(errOut.Name()); err != nil || string(b) != "holdfast: interrupted by INT while waiting for L\n" {
		t.Errorf("%q %v", b, err)
	}
}
