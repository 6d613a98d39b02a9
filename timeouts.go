package holdfast

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// bounded limits one request to the store. Local stores answer at once, and a
// timer for each would cost more than the request.
func (c *Client) bounded(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	return c.within(ctx, c.requestTimeout(ttl))
}

func (c *Client) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	switch {
	case c.props.Local:
		return ctx, func() {}
	case ctx.Done() == nil:
		return c.timeouts.get(d)
	}
	return context.WithTimeout(ctx, d)
}

func (c *Client) requestTimeout(ttl time.Duration) time.Duration {
	return min(cmp.Or(c.opts.RequestTimeout, maxRequestTimeout), ttl/renewFraction)
}

func (c *Client) releaseTimeout() time.Duration {
	return cmp.Or(c.opts.RequestTimeout, maxRequestTimeout)
}

// timeouts bound the requests of callers whose own ctx never ends. Those of
// one length and about one moment share a ctx, since a timer for each would cost
// more than the rest of an uncontended acquire: a request then has from 7/8 of its
// time to all of it.
type timeouts struct {
	life context.Context // ends them all
	end  context.CancelFunc

	mu  sync.Mutex
	all map[time.Duration]*timeout // the latest of each length
}

// timeout is a shared ctx.
type timeout struct {
	until time.Time // it is shared until then, by the clock of its timer
	ctx   context.Context
}

// sharedLengths is how many lengths are shared; a client seldom has more than
// those of its TTL and of a release.
const sharedLengths = 8

func (t *timeouts) get(length time.Duration) (context.Context, context.CancelFunc) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	shared := t.all[length]
	switch {
	case shared != nil && now.Before(shared.until):
	case shared == nil && len(t.all) >= sharedLengths:
		return driver.WithDeadlineOnly(t.life, length)
	default:
		if t.all == nil {
			t.all = map[time.Duration]*timeout{}
		}
		shared = &timeout{until: now.Add(length / 8)}
		shared.ctx, _ = driver.WithDeadlineOnly(t.life, length) // it ends by itself
		t.all[length] = shared
	}
	return shared.ctx, func() {}
}
