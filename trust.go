package holdfast

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// never is the deadline of a hold that has none.
const never = driver.Instant(math.MaxInt64)

// trustUntil is law G4: until when a holder may trust a grant of window. sent is
// when the latest request was sent that the store surely handled no later than
// the grant. The two clocks' rates may differ by the drift; the margin covers
// the lateness of our own timers.
//
// The idea is that of C. Gray and D. Cheriton, "Leases" (SOSP 1989): the
// holder's term ends before the server's, with no clock compared.
func trustUntil(sent driver.Instant, window time.Duration) driver.Instant {
	if window == 0 {
		return never
	}
	return sent.Add(window - window*driftPercent/100 - margin(window))
}

// trustGrant is the deadline of a fresh grant. A store that keeps a grant as
// long as the connection lives has no window; a lease that is not to be renewed
// ends there by our own clock.
func trustGrant(p *place, g driver.Grant) driver.Instant {
	if g.Window == 0 && p.ask.noRenew {
		return trustUntil(p.sent, p.ask.ttl)
	}
	return trustUntil(p.sent, g.Window)
}

func margin(window time.Duration) time.Duration {
	return max(minMargin, window/marginFraction)
}
