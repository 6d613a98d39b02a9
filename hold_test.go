package holdfast

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Once a deadline has been seen to lapse no renewal moves it, not one that is noted
// in the very moment either.
func TestLapsedIsFinal(t *testing.T) {
	for range 1000 {
		h := new(hold)
		h.setDeadline(driver.Now().Add(10 * time.Microsecond))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 20 {
				h.setDeadline(driver.Now().Add(10 * time.Microsecond))
			}
			h.setDeadline(never)
		})
		for range 3 {
			wg.Go(func() {
				for !h.lapsed() {
					if h.until() == never {
						return
					}
				}
				for range 20 {
					if !h.lapsed() {
						t.Error("trusted again")
					}
				}
			})
		}
		wg.Wait()
	}
}
