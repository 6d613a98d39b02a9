package redislock

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memlock"
)

// memory makes a store of the kind that is the reference.
func memory() storetest.Full { return memlock.New().(storetest.Full) } //nolint:errcheck,forcetypeassert // it has all abilities

func TestSameAsMemory(t *testing.T) {
	t.Parallel()
	m := storetest.Model{Ours: ownServer(t).open(t), Reference: memory, Keeps: true, Name: nameOf, Overtakes: true, Buries: true}
	m.Run(t, 100)
}
