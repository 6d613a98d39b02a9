package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

var handleCases = []Case{
	{
		ID: "G2.14", Rule: "A lease that was made a handle ends here without being freed; whoever adopts the handle holds it, with the same token, again and again.",
		Needs: NeedHandles, Func: handles,
		Kills: []string{"grant bound to its client", "try takes a place"},
	},
	{
		ID: "G2.15", Rule: "A handle whose grant is gone cannot be adopted, and nobody is disturbed by the attempt.",
		Needs: NeedHandles, Func: staleHandle,
		Kills: []string{"no owner compare", "grant bound to its client"},
	},
}

func handles(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	handle, err := l.Handle()
	if err != nil {
		t.Fatalf("Handle: %v", err)
	}
	t.ends(l, holdfast.ErrReleased)
	t.busy(c, name, nil, "while only a handle holds the name")
	for _, client := range []*holdfast.Client{b, a} {
		adopted, adoptErr := client.Adopt(t.ctx, handle)
		if adoptErr != nil {
			t.Fatalf("Adopt: %v", adoptErr)
		}
		if adopted.Token() != l.Token() || adopted.Name() != name || !adopted.Valid() {
			t.Errorf("adopted %q with token %d, want %q with %d", adopted.Name(), adopted.Token(), name, l.Token())
		}
		if again, handleErr := adopted.Handle(); handleErr != nil {
			t.Errorf("Handle of an adopted lease: %v", handleErr)
		} else {
			handle = again
		}
		t.busy(c, name, nil, "after the handle was adopted")
	}
	last, err := c.Adopt(t.ctx, handle)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	t.frees(last)
	t.frees(t.gets(b, name, nil))
}

func staleHandle(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	handle, err := t.locks(a, name, nil).Handle()
	if err != nil {
		t.Fatalf("Handle: %v", err)
	}
	adopted, err := b.Adopt(t.ctx, handle)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	t.frees(adopted)
	next := t.gets(a, name, nil)
	if _, err = b.Adopt(t.ctx, handle); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Adopt of a stale handle: %v, want ErrLost", err)
	}
	if _, err = b.Adopt(t.ctx, "nonsense"); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("Adopt of nonsense: %v, want ErrInvalid", err)
	}
	if err = next.Check(t.ctx); err != nil {
		t.Errorf("the holder: %v", err)
	}
	if left := time.Until(deadlineOf(next)); left <= 0 {
		t.Errorf("the holder's deadline is over")
	}
	t.frees(next)
}
