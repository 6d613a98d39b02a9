// Package holdfasttest lets programs test what they do when a lock is held by
// another, when a lease is lost, and when the store is slow or down.
//
// A [Fake] is a lock store in memory. It works inside testing/synctest bubbles,
// where leases run out in no time:
//
//	func TestStopsWhenLockIsLost(t *testing.T) {
//		fake := holdfasttest.New(t)
//		done := make(chan error)
//		go func() { done <- work(t.Context(), fake.Client()) }() // code under test
//		fake.WaitHeld("orders")
//		fake.Lose("orders")
//		if err := <-done; !errors.Is(err, holdfast.ErrLost) { … }
//	}
package holdfasttest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Fake is a lock store in memory with faults to order, and the clients of it.
// Faults may be ordered from many goroutines; what may fail the test (NewClient,
// Lose, WaitHeld) is for the test's own. Names are those of clients without a
// prefix. A fake that is used in a testing/synctest bubble must be made there.
type Fake struct {
	tb     testing.TB
	server *memlock.Server
	faults *faults
	client *holdfast.Client
	look   driver.Inspector // sees the store without the faults
	breaks driver.Breaker
}

// New makes a fake with one client. The clients are closed when the test ends.
func New(tb testing.TB) *Fake {
	tb.Helper()
	f := &Fake{tb: tb, server: memlock.NewServer(), faults: &faults{}}
	plain := f.server.Store()
	f.look, _ = plain.(driver.Inspector)
	f.breaks, _ = plain.(driver.Breaker)
	f.client = f.NewClient(nil)
	return f
}

// Client is the first client, of the code under test.
func (f *Fake) Client() *holdfast.Client { return f.client }

// NewClient makes another client of the same store, as another process would
// have. opts may be nil; then the client's log is the test's.
func (f *Fake) NewClient(opts *holdfast.Options) *holdfast.Client {
	f.tb.Helper()
	inner, ok := f.server.Store().(memory)
	if !ok {
		f.tb.Fatal("holdfasttest: the memory store lacks an ability")
	}
	o := holdfast.Options{Logger: slog.New(slog.NewTextHandler(f.tb.Output(), nil))}
	if opts != nil {
		o = *opts
	}
	c, err := holdfast.New(&store{memory: inner, faults: f.faults}, &o)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.tb.Cleanup(func() {
		f.Down(false)
		f.Delay(0)
		_ = c.Close()
	})
	return c
}

// Lose takes the name away from all who hold it, as an expiry would: their leases
// have ended with ErrLost when it returns, and another can acquire the name. The
// test fails if nobody holds the name.
func (f *Fake) Lose(name string) {
	f.tb.Helper()
	n := storeName(name)
	record, err := f.look.Inspect(context.Background(), n)
	if err != nil || len(record.Holders) == 0 {
		f.tb.Fatalf("holdfasttest: nobody holds %q", name)
	}
	for _, h := range record.Holders {
		told := f.faults.expectLoss(h.Owner)
		if _, err := f.breaks.Break(context.Background(), &driver.BreakRequest{Name: n, Token: h.Token, Force: true}); err != nil {
			f.tb.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		select {
		case <-told:
		case <-ctx.Done(): // the client was closed meanwhile
		}
		cancel()
	}
}

// Delay makes every request to the store take d, half of it before the store
// has handled it. A request that is cut short in the second half has been
// applied though its caller does not know it.
func (f *Fake) Delay(d time.Duration) { f.faults.delay.Store(int64(d)) }

// Down makes every request fail as if the store could not be reached, until
// Down(false).
func (f *Fake) Down(down bool) { f.faults.down.Store(down) }

// WaitHeld waits until somebody holds the name; the test fails after ten
// seconds.
func (f *Fake) WaitHeld(name string) {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		if r, err := f.look.Inspect(ctx, storeName(name)); err == nil && len(r.Holders) > 0 {
			return
		}
		if wait(ctx, time.Millisecond) != nil {
			f.tb.Fatalf("holdfasttest: nobody acquired %q", name)
		}
	}
}

// storeName is the key of a name without a prefix, as docs/wire.md has it for
// stores that take any key.
func storeName(name string) driver.Name { return driver.Name{Key: ":" + name, Full: name} }
