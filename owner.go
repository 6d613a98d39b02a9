package holdfast

import (
	"crypto/rand"

	"github.com/holdfast-go/holdfast/driver"
)

// newOwner names a new attempt.
func newOwner() (o driver.Owner) {
	_, _ = rand.Read(o[:]) // never fails: the program ends if there is no randomness
	return o
}
