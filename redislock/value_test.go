package redislock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// The value is in the holder's record and dies with it, whatever the name is
// and whoever waits; nothing else is written.
func TestValueInTheRecord(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other, c := server.open(t), server.open(t), server.client(t)
	odd := driver.Name{Key: "hashed", Full: "two\nlines: and\ta colon", Prefix: "p"}
	for _, n := range []driver.Name{nameOf("plain"), odd} {
		req := request("")
		req.Name = n
		ref, status := ask(t, s, req)
		if status != driver.Granted {
			t.Fatal(status)
		}
		says := func(seq uint64, value string) {
			t.Helper()
			if held, err := s.SetValue(t.Context(), &driver.ValueRequest{Ref: ref, Seq: seq, Value: value}); err != nil || !held {
				t.Fatal(held, err)
			}
			h, err := other.Leader(t.Context(), n)
			if err != nil || h == nil || h.Value != value || h.Seq != seq || h.Owner != ref.Owner {
				t.Errorf("leader %+v, %v, want %q", h, err, value)
			}
			r, err := other.Inspect(t.Context(), n)
			if err != nil || len(r.Holders) != 1 || r.Holders[0].Value != value {
				t.Errorf("%+v, %v", r, err)
			}
		}
		says(1, "alone")
		says(2, strings.Repeat("ä", driver.MaxValue/2))
		behind := request("")
		behind.Name, behind.Queue = n, true
		next, status := ask(t, other, behind)
		if status != driver.Waiting {
			t.Fatal(status)
		}
		says(10, "watched by one who waits")
		for r, err := range other.List(t.Context(), n.Prefix) {
			if err != nil || r.Name != n.Full || len(r.Waiters) != 1 || r.Holders[0].Value == "" {
				t.Errorf("listed %+v, %v", r, err)
			}
		}
		free(t, s, ref)
		if h, err := s.Leader(t.Context(), n); err != nil || h == nil || h.Owner != next.Owner || h.Value != "" || h.Seq != 0 {
			t.Errorf("the next leader is %+v, %v", h, err)
		}
		free(t, other, next)
		all, err := c.Do(t.Context(), c.B().Keys().Pattern("hf[^t]*").Build()).AsStrSlice()
		if err != nil || len(all) != 0 {
			t.Errorf("left behind: %v, %v", all, err)
		}
	}
}

// What a leader says, and the question who leads, cost one round trip each,
// however many wait.
func TestCostOfValue(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	ref := hold(t, s, t.Name())
	for range 20 {
		enqueue(t, s, t.Name())
	}
	set := func(seq uint64) {
		if held, err := s.SetValue(t.Context(), &driver.ValueRequest{Ref: ref, Seq: seq, Value: "v"}); err != nil || !held {
			t.Fatal(held, err)
		}
	}
	ask := func() {
		if h, err := s.Leader(t.Context(), ref.Name); err != nil || h == nil {
			t.Fatal(h, err)
		}
	}
	set(1)
	ask()
	c := server.client(t)
	expect(t, "a value", commands(t, c, func() { set(2) }), map[string]int{"evalsha": 1, "get": 1, "hlen": 1, "time": 1, "pexpireat": 1, "set": 1})
	expect(t, "a repeated value", commands(t, c, func() { set(2) }), map[string]int{"evalsha": 1, "get": 1, "hlen": 1, "time": 1})
	expect(t, "a question", commands(t, c, ask), map[string]int{"evalsha": 1, "type": 1, "get": 1, "time": 1, "pttl": 1})
}
