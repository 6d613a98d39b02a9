package zklock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memlock"
)

// memory makes a store of the kind that is the reference.
func memory() storetest.Full { return memlock.New().(storetest.Full) } //nolint:errcheck,forcetypeassert // it has all abilities

func TestSameAsMemory(t *testing.T) {
	t.Parallel()
	name := func(text string) driver.Name { return driver.Name{Key: "+" + escaped(text), Full: text} }
	m := storetest.Model{Ours: sharedServer(t).open(t).store, Reference: memory, Name: name, Buries: true, Lags: true, TTL: testTTL}
	m.Run(t, 30)
}
