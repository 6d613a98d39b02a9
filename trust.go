package holdfast

import (
	"context"
	"errors"
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

func margin(window time.Duration) time.Duration {
	return max(minMargin, window/marginFraction)
}

var (
	errLateGrant = errors.New("the grant came too late to be trusted, and was given back")
	errBadGrant  = errors.New("the store broke its contract: no window, one from nowhere, or a token that is too large; the grant was given back")
)

// trust is the deadline of a fresh grant, or why it cannot be trusted. A store
// that keeps a grant as long as the connection lives gives no window; a lease
// that is not to be renewed ends there by our own clock.
func (c *Client) trust(p *place, g driver.Grant, now driver.Instant) (driver.Instant, error) {
	deadline := trustUntil(p.sent, g.Window)
	if g.Window == 0 && p.ask.noRenew {
		deadline = trustUntil(now, p.ask.ttl)
	}
	tokens := uint64(1) << 55
	if c.props.FinalTokens {
		tokens = 1 << 63
	}
	switch {
	case g.Window < 0 || g.Window == 0 && c.props.Bound == driver.ByLease || g.Window > 0 && p.sent == 0 || g.Token >= tokens:
		return 0, errBadGrant
	case deadline <= now:
		return 0, errLateGrant
	}
	return deadline, nil
}

// grantError is what a caller learns of a grant that could not be used.
func (c *Client) grantError(name string, err error) error {
	switch {
	case errors.Is(err, errLateGrant):
		return c.errorf("acquire", name, ErrUnavailable, err)
	case errors.Is(err, errBadGrant):
		return c.errorf("acquire", name, ErrUnsupported, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return c.waitError(name, err, nil, nil, nil)
	}
	return c.errorf("acquire", name, err, nil)
}
