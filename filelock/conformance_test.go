//go:build linux

package filelock

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	drivertest.Run(t, drivertest.Harness{
		New:   func(ctx context.Context) (driver.Store, error) { return openForSuite(ctx, dir) },
		Spawn: drivertest.Self(dir),
	})
}

// openForSuite opens the suite's store, in its processes too.
func openForSuite(_ context.Context, dir string) (driver.Store, error) { return New(dir, nil) }
