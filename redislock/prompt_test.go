package redislock

import (
	"context"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// slowToDial makes a store whose client dials for twice as long as tests wait.
func (s *server) slowToDial(tb testing.TB) *store {
	tb.Helper()
	u, err := url.Parse(s.url())
	if err != nil {
		tb.Fatal(err)
	}
	option, opts, err := parse(u)
	if err != nil {
		tb.Fatal(err)
	}
	option.Dialer.Timeout, option.ConnWriteTimeout = 2*patience, 2*patience // the latter is for the handshake
	opened, err := newStore(tb.Context(), newDirectLink(option), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = opened.Close() })
	opened.Listen(func(driver.Signal) {})
	return opened
}

// A call returns when its ctx ends, though the client dials a server that says nothing
// just then, and the connection that hears messages stands.
func TestCallsEndWhileTheClientDials(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.slowToDial(t)
	ref := hold(t, s, "name")
	enqueue(t, s, "name")
	free(t, s, hold(t, s, "other"))
	if _, ok := s.prompter.Prompt(t.Context()); !ok {
		t.Error("the connection is not known to stand")
	}
	must(t, server.client(t), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	cancelled := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 20*time.Millisecond)
	}
	deadline := func() (context.Context, context.CancelFunc) {
		return driver.WithDeadlineOnly(t.Context(), hasty+100*time.Millisecond)
	}
	for what, ctxOf := range map[string]func() (context.Context, context.CancelFunc){
		"a ctx that a caller ends": cancelled, "one that only its deadline ends": deadline,
	} {
		for range 3 { // of which the first may find that the connection is cut
			ends(t, what, ctxOf, func(ctx context.Context) error {
				_, err := s.Acquire(ctx, request("other"))
				return err
			})
			ends(t, what+", a renewal", ctxOf, func(ctx context.Context) error {
				return s.Renew(ctx, []driver.RenewRequest{{Ref: ref}})[0].Err
			})
		}
	}
}

// ends asserts that a call returns, with an error.
func ends(t *testing.T, what string, ctxOf func() (context.Context, context.CancelFunc), call func(context.Context) error) {
	t.Helper()
	ctx, cancel := ctxOf()
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			t.Errorf("%s: an answer", what)
		}
	case <-time.After(patience):
		t.Fatalf("%s: the call does not return", what)
	}
}
