package memlock_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
)

// In real time; package drivertest runs the same cases on a bubble's clock.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := memlock.NewServer()
	drivertest.Run(t, drivertest.Harness{
		New: func(context.Context) (driver.Store, error) { return server.Store(), nil },
	})
}
