package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// grants is a store that grants everything: what is left is our own cost.
type grants struct{}

func (grants) Acquire(context.Context, *driver.AcquireRequest) (driver.AcquireResult, error) {
	return driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: 1}}, nil
}

func (grants) Renew(_ context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	return make([]driver.RenewResult, len(reqs))
}

func (grants) Release(context.Context, *driver.ReleaseRequest) (bool, error) { return true, nil }
func (grants) Classify(err error) driver.Kind                                { return driver.KindOf(err) }
func (grants) Close() error                                                  { return nil }
func (grants) Properties() driver.Properties {
	return driver.Properties{Store: "grants", Bound: driver.ByConnection, Local: true, Names: driver.Names{MaxBytes: 200, Portable: true}}
}

// What the core itself costs a caller that meets nobody.
func BenchmarkOverhead(b *testing.B) {
	c, err := holdfast.New(grants{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Acquire(b.Context(), "x", nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = l.Release(b.Context())
	}
}
