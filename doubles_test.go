package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// plain is a store that has nothing but what a store must have. It polls, and
// answers from memory unless a test says otherwise. Doubles of the kinds of
// stores add to it what these have.
type plain struct {
	inner     memory
	change    func(p *driver.Properties)
	onAcquire func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error)
	onRenew   func(ctx context.Context, req driver.RenewRequest) driver.RenewResult
	onRelease func(ctx context.Context, req *driver.ReleaseRequest) (bool, error)
}

func newPlain(tb testing.TB, server *memlock.Server) *plain {
	tb.Helper()
	return &plain{inner: newSpy(tb, server).memory}
}

func (s *plain) Properties() driver.Properties {
	p := s.inner.Properties()
	p.Store, p.Wait, p.Local, p.OneHost = "plain", driver.ByPolling, false, false
	if s.change != nil {
		s.change(&p)
	}
	return p
}

func (s *plain) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	if s.onAcquire != nil {
		return s.onAcquire(ctx, req)
	}
	return s.inner.Acquire(ctx, req)
}

func (s *plain) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	if s.onRenew == nil {
		return s.inner.Renew(ctx, reqs)
	}
	results := make([]driver.RenewResult, len(reqs))
	for i, req := range reqs {
		results[i] = s.onRenew(ctx, req)
	}
	return results
}

func (s *plain) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	if s.onRelease != nil {
		return s.onRelease(ctx, req)
	}
	return s.inner.Release(ctx, req)
}

func (s *plain) Classify(err error) driver.Kind { return driver.KindOf(err) }
func (s *plain) Close() error                   { return s.inner.Close() }

// renewOne renews in the memory underneath.
func (s *plain) renewOne(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
	return s.inner.Renew(ctx, []driver.RenewRequest{req})[0]
}

// open makes a client, closed when the test ends.
func open(tb testing.TB, store driver.Store, o *holdfast.Options) *holdfast.Client {
	tb.Helper()
	options := holdfast.Options{}
	if o != nil {
		options = *o
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := holdfast.New(store, &options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// take acquires a name that must be had.
func take(tb testing.TB, c *holdfast.Client, name string, o *holdfast.AcquireOptions) *holdfast.Lease {
	tb.Helper()
	l, err := c.Acquire(tb.Context(), name, o)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// give releases a lease that must be held.
func give(tb testing.TB, l *holdfast.Lease) {
	tb.Helper()
	if err := l.Release(tb.Context()); err != nil {
		tb.Error(err)
	}
}

// outcome is what an acquire on another goroutine came to.
type outcome struct {
	lease *holdfast.Lease
	err   error
	at    time.Time
}

// later acquires on a goroutine of its own.
func later(ctx context.Context, c *holdfast.Client, name string, o *holdfast.AcquireOptions) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		l, err := c.Acquire(ctx, name, o)
		out <- outcome{l, err, time.Now()}
	}()
	return out
}

// want checks that an error matches all the kinds.
func want(tb testing.TB, err error, kinds ...error) {
	tb.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			tb.Errorf("error %v, want %v", err, kind)
		}
	}
}

// free checks that nothing is held or waited for.
func free(tb testing.TB, server *memlock.Server) {
	tb.Helper()
	for r, err := range newSpy(tb, server).client(tb).List(tb.Context(), "") {
		tb.Errorf("left in the store: %+v, %v", r, err)
	}
}

func down() error { return &driver.Failure{Kind: driver.Unavailable, Err: errors.New("store is down")} }

func torn() error {
	return &driver.Failure{Kind: driver.Indeterminate, Err: errors.New("cut half-way")}
}

// story is a hook that writes down what it is told.
type story struct {
	mu     sync.Mutex
	events []holdfast.Event
	also   func(e holdfast.Event) // called after an event is written down
}

func (s *story) observe(_ context.Context, e holdfast.Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	if s.also != nil {
		s.also(e)
	}
}

// of gives the events of a token; of all for 0.
func (s *story) of(token uint64) (events []holdfast.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if token == 0 || e.Token == token {
			events = append(events, e)
		}
	}
	return events
}

// check compares the kinds of the events of a token with what they must be.
func (s *story) check(tb testing.TB, token uint64, kinds string) []holdfast.Event {
	tb.Helper()
	return checkKinds(tb, s.of(token), kinds)
}

// checkOnly is check for the events of one kind: of those that different
// goroutines tell no order is promised.
func (s *story) checkOnly(tb testing.TB, kind holdfast.EventKind, kinds string) []holdfast.Event {
	tb.Helper()
	events := slices.DeleteFunc(s.of(0), func(e holdfast.Event) bool { return e.Kind != kind })
	return checkKinds(tb, events, kinds)
}

func checkKinds(tb testing.TB, events []holdfast.Event, kinds string) []holdfast.Event {
	tb.Helper()
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Kind.String()
	}
	if got := strings.Join(names, " "); got != kinds {
		tb.Fatalf("told %q, want %q", got, kinds)
	}
	return events
}
