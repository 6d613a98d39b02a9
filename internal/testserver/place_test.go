package testserver_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// No port is 10,000 above another: there the nodes of a Redis Cluster talk.
func TestFreePorts(t *testing.T) {
	given := map[int]bool{}
	for range 12_000 {
		given[testserver.FreePort()] = true
	}
	for port := range given {
		if port == 0 || given[port+10_000] {
			t.Errorf("%d is given, and %d", port, port+10_000)
			return
		}
	}
}
