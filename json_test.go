package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// The JSON forms are read by programs of others: they may grow, not change.
func TestJSON(t *testing.T) {
	holder := holdfast.Holder{
		Owner: "0123456789abcdef0123456789abcdef", Label: "host/app[1]", Token: 1<<63 - 1, Mode: holdfast.Permits, Permits: 2,
		Held: 1500 * time.Millisecond, Left: 29*time.Second + 999*time.Microsecond, Broken: "stuck (by me)",
	}
	waiter := holdfast.Waiter{Owner: "ff", Label: "w", Mode: holdfast.Shared, Waited: time.Minute}
	for golden, value := range map[string]any{
		`{"name":"x","mode":"none"}`: holdfast.Record{Name: "x"},
		`{"name":"s","mode":"permits","limit":3,"holders":[` +
			`{"owner":"0123456789abcdef0123456789abcdef","label":"host/app[1]","token":"9223372036854775807","mode":"permits","permits":2,` +
			`"held_ms":1500,"left_ms":29000,"broken":"stuck (by me)"}],"waiters":[{"owner":"ff","label":"w","mode":"shared","waited_ms":60000}]}`: holdfast.Record{
			Name: "s", Mode: holdfast.Permits, Limit: 3, Holders: []holdfast.Holder{holder}, Waiters: []holdfast.Waiter{waiter},
		},
		`{"owner":"","token":"0","mode":"exclusive","held_ms":0}`:               holdfast.Holder{Mode: holdfast.Exclusive},
		`{"owner":"ff","label":"w","mode":"permits","permits":4,"waited_ms":0}`: &holdfast.Waiter{Owner: "ff", Label: "w", Mode: holdfast.Permits, Permits: 4},
		`["none","exclusive","shared","permits","unknown"]`:                     []any{holdfast.Mode(0), holdfast.Exclusive, holdfast.Shared, holdfast.Permits, holdfast.Mode(4)},
		`["none","D","C","B","A","unknown"]`:                                    []any{holdfast.ClassNone, holdfast.ClassD, holdfast.ClassC, holdfast.ClassB, holdfast.ClassA, holdfast.Class(5)},
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != golden {
			t.Errorf("%v\n got %s\nwant %s", err, got, golden)
		}
	}
}

func TestHolderText(t *testing.T) {
	for golden, h := range map[string]holdfast.Holder{
		"held by owner ff": {Owner: "ff"},
		"held by a, token 7, for 1.5s, ttl left 20s, broken: stuck": {
			Owner: "ff", Label: "a", Token: 7, Held: 1500 * time.Millisecond, Left: 20*time.Second + time.Microsecond, Broken: "stuck",
		},
	} {
		if h.String() != golden {
			t.Errorf("%q, want %q", h, golden)
		}
	}
}

// An error is one line, whatever it was made of, and matches kind and cause.
func TestErrorText(t *testing.T) {
	cause := errors.Join(errors.New("one"), fmt.Errorf("two: %w", context.DeadlineExceeded))
	err := &holdfast.Error{
		Op: "acquire", Name: "a\nb", Store: "memory", Kind: holdfast.ErrTimeout, Err: cause,
		Holder: &holdfast.Holder{Label: "h", Token: 3},
	}
	const golden = `holdfast: acquire "a\nb" on memory: wait ran out: one; two: context deadline exceeded (held by h, token 3)`
	if err.Error() != golden {
		t.Errorf("%q, want %q", err, golden)
	}
	want(t, err, holdfast.ErrTimeout, context.DeadlineExceeded)
	if text := (&holdfast.Error{Op: "open", Kind: holdfast.ErrInvalid}).Error(); text != "holdfast: open: invalid" {
		t.Error(text)
	}
	if _, err := holdfast.New(nil, nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Error(err)
	}
	bad := &holdfast.AcquireOptions{Mode: 9, TTL: 1, MaxHold: 1, MinHold: -1, Wait: -1, Label: strings.Repeat("l", 257)}
	_, invalid := open(t, grants{}, nil).Acquire(t.Context(), "\xff", bad)
	want(t, invalid, holdfast.ErrInvalid)
	if text := invalid.Error(); strings.Contains(text, "\n") || strings.Count(text, "; ") < 6 {
		t.Errorf("%q: must name all problems on one line", text)
	}
}

func TestErrorTimeout(t *testing.T) {
	for _, test := range []struct {
		kind, cause error
		timeout     bool
	}{
		{holdfast.ErrTimeout, nil, true},
		{holdfast.ErrTimeout, holdfast.ErrHeld, true},
		{context.DeadlineExceeded, nil, true},
		{holdfast.ErrUnavailable, context.DeadlineExceeded, true},
		{holdfast.ErrHeld, nil, false},
		{context.Canceled, nil, false},
		{holdfast.ErrBroken, nil, false},
	} {
		var err interface {
			error
			Timeout() bool
		} = &holdfast.Error{Op: "acquire", Kind: test.kind, Err: test.cause}
		if err.Timeout() != test.timeout {
			t.Errorf("%v: timeout %v", err, err.Timeout())
		}
	}
	var _ interface{ Timeout() bool } = net.Error(nil)
	if !errors.Is(holdfast.ErrBroken, holdfast.ErrLost) {
		t.Error("a broken lease is a lost one too")
	}
}
