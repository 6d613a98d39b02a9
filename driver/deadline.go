package driver

import (
	"context"
	"time"
)

type deadlineOnly struct{}

// WithDeadlineOnly makes a ctx that nothing but its deadline ends, or the end of
// life: a client's, when it is closed and the store does not answer. Package
// holdfast gives it to calls of a caller whose own ctx never ends; the calls of
// about one moment share one, so it carries no values of the caller's.
func WithDeadlineOnly(life context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(life, deadlineOnly{}, true), d)
}

// DeadlineOnly tells whether ctx is one of [WithDeadlineOnly]. A driver may then
// leave it to its connection to end the call in time, where else it needs a goroutine
// that can return before the call does; a Close waits for the call then.
func DeadlineOnly(ctx context.Context) bool { return ctx.Value(deadlineOnly{}) != nil }
