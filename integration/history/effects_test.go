package history_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/integration/history"
)

func TestEffects(t *testing.T) {
	effect := func(op, was, now uint64) history.Event {
		return history.Event{Kind: history.Effect, Op: op, Was: was, Now: now}
	}
	for name, c := range map[string]struct {
		first, second history.Event
		bad           bool
	}{
		"in turn":       {effect(1, 0, 1), effect(2, 1, 2), false},
		"lost update":   {effect(1, 0, 1), effect(2, 0, 1), true},
		"under no hold": {effect(1, 0, 1), effect(7, 1, 2), true},
		"not by one":    {effect(1, 0, 1), effect(2, 1, 3), true},
	} {
		s := &script{client: map[uint64]int{}}
		s.get(1, w, 0, 10)
		s.add(c.first)
		s.free(1)
		s.get(2, w, 0, 11)
		s.add(c.second)
		s.free(2)
		h, err := history.New(s.events)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := h.Effects(); n != 2 || (err != nil) != c.bad {
			t.Errorf("%s: %d effects, %v", name, n, err)
		}
	}
}

// What a recorder writes is what is read, but for a line that was cut off.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r, err := history.Create(path, "p1")
	if err != nil {
		t.Fatal(err)
	}
	op := r.NextOp()
	r.Add(history.Event{Kind: history.Acquire, Op: op, Name: "x", Mode: w})
	r.Add(history.Event{Kind: history.Granted, Op: op, Token: 1 << 60})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(`{"at":1,"kind":"rel`)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := history.Read(path)
	if err != nil || len(events) != 2 || events[1].Token != 1<<60 || events[1].At <= events[0].At || events[1].Proc != "p1" {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := history.New(events[1:]); err == nil {
		t.Error("a grant without a call was accepted")
	}
}
