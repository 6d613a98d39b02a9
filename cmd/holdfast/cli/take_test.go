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
		{holdfast.Event{Kind: holdfast.EventStoreDown, Err: silent}, false},
		{holdfast.Event{Kind: holdfast.EventStoreDown, Err: silent, Took: 9 * time.Second}, false},
		{holdfast.Event{Kind: holdfast.EventStoreDown, Err: silent, Took: 10 * time.Second}, true},
		{holdfast.Event{Kind: holdfast.EventLongWait, Err: silent, Took: 10 * time.Second}, false},
		{holdfast.Event{Kind: holdfast.EventLongWait, Holder: &holdfast.Holder{}, Took: 10 * time.Second}, false},
		{holdfast.Event{Kind: holdfast.EventLongWait, Err: errors.New("other"), Took: 10 * time.Second}, false},
	} {
		var why error
		h.observe(&c.event, w, func(cause error) { why = cause })
		if got := errors.Is(why, errStoreSilent); got != c.want {
			t.Errorf("%+v: %v", c.event, why)
		}
	}
	b, err := os.ReadFile(errOut.Name())
	if err != nil || strings.Count(string(b), "waiting for the store") != 1 || strings.Count(string(b), "still waiting") != 2 {
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
