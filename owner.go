package holdfast

import (
	"crypto/rand"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// entropy is random bytes in store: one draw serves many owners.
var entropy struct {
	sync.Mutex
	bytes [64 * len(driver.Owner{})]byte
	used  int
}

func init() { entropy.used = len(entropy.bytes) }

// newOwner names a new attempt.
func newOwner() (o driver.Owner) {
	entropy.Lock()
	defer entropy.Unlock()
	if entropy.used == len(entropy.bytes) {
		_, _ = rand.Read(entropy.bytes[:]) // never fails: the program ends if there is no randomness
		entropy.used = 0
	}
	entropy.used += copy(o[:], entropy.bytes[entropy.used:])
	return o
}
