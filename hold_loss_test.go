package holdfast

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// briefly is a store that grants everything for a short while.
type briefly struct{}

func (briefly) Acquire(_ context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	return driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: 1, Window: req.TTL}}, nil
}

func (briefly) Renew(_ context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	results := make([]driver.RenewResult, len(reqs))
	for i := range results {
		results[i] = driver.RenewResult{Status: driver.Renewed, Window: reqs[i].TTL}
	}
	return results
}

func (briefly) Release(context.Context, *driver.ReleaseRequest) (bool, error) { return true, nil }
func (briefly) Classify(err error) driver.Kind                                { return driver.KindOf(err) }
func (briefly) Close() error                                                  { return nil }
func (briefly) Properties() driver.Properties {
	return driver.Properties{Store: "briefly", Bound: driver.ByLease, Names: driver.Names{MaxBytes: 200, Portable: true}}
}

// Who saw that a lease is lost hears no other reason later, whatever comes before the
// keeper does: a break, one by force, or Close.
func TestLostIsNothingElseLater(t *testing.T) {
	for name, end := range map[string]func(c *Client, h *hold) []*farewell{
		"break":  func(c *Client, h *hold) []*farewell { return []*farewell{c.revoke(h, "hangs")} },
		"forced": func(c *Client, h *hold) []*farewell { return []*farewell{c.lose(h, "the store says so", "hangs")} },
		"close":  func(c *Client, _ *hold) []*farewell { return c.closeHolds() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []Event
			c, err := New(briefly{}, &Options{Observe: func(_ context.Context, e Event) { told = append(told, e) }})
			if err != nil {
				t.Fatal(err)
			}
			l, err := c.Acquire(t.Context(), "x", &AcquireOptions{TTL: MinTTL, NoRenew: true})
			if err != nil {
				t.Fatal(err)
			}
			ctx := l.Context()
			c.mu.Lock() // the keeper is late
			for l.Valid() {
			}
			if ctx.Err() == nil {
				t.Error("the context lives")
			}
			byes := end(c, l.hold)
			c.mu.Unlock()
			for _, bye := range byes {
				bye.end()
				bye.tell()
			}
			for _, err := range []error{context.Cause(ctx), l.Check(t.Context()), l.Release(t.Context())} {
				if !errors.Is(err, ErrLost) || errors.Is(err, ErrBroken) || errors.Is(err, ErrReleased) {
					t.Error(err)
				}
			}
			if err := c.Close(); err != nil { // all is told then
				t.Error(err)
			}
			if n := len(told); n != 2 || told[1].Kind != EventLost || !errors.Is(told[1].Err, ErrLost) {
				t.Errorf("told %v", told)
			}
		})
	}
}
