package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// timeouts bound the requests of callers whose own ctx never ends. Those of
// about one moment share a ctx, since a timer for each would cost more than the
// rest of an uncontended acquire: a request then has from 7/8 of its time to all
// of it.
type timeouts struct {
	mu     sync.Mutex
	length time.Duration
	until  driver.Instant // it is shared until then
	ctx    context.Context
	cancel context.CancelFunc
}

func (t *timeouts) get(length time.Duration) context.Context {
	now := driver.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil || t.length != length || now >= t.until {
		t.length, t.until = length, now.Add(length/8)
		t.ctx, t.cancel = driver.WithDeadlineOnly(length) // the one before ends by itself
	}
	return t.ctx
}

// end ends the latest one.
func (t *timeouts) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancel != nil {
		t.cancel()
	}
}
