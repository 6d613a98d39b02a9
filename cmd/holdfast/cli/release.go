package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// giveBack releases. A store that does not answer is told of, but the result of
// the command is not lost to that. A name that has to stay taken for a while
// longer is waited for, unless a signal calls that off.
func (h *held) giveBack(o *runOptions, signals *signals) {
	h.closeLocks()
	if h.client == nil {
		return
	}
	name, end := printable(o.name), h.keptUntil(o)
	if left := time.Until(end); left > 0 && isTerminal(h.a.stderr) {
		h.a.say("keeping", fmt.Sprintf("done; keeping %s for %s more", name, short(left)), nil)
	}
	ctx, done := signals.context()
	defer done()
	closed := make(chan error, 1)
	go func() {
		err := h.lease.Release(context.WithoutCancel(ctx))
		if errors.Is(err, holdfast.ErrLost) {
			err = nil // told already
		}
		closed <- errors.Join(err, h.client.Close())
	}()
	select {
	case err := <-closed:
		if err != nil {
			h.a.report("release", "the lock may stay taken until its TTL is over: "+printable(err.Error()), nil)
		}
	case <-ctx.Done():
		sig, _ := errors.AsType[signalError](context.Cause(ctx))
		text := "interrupted by " + signalName(syscall.Signal(sig)) + ": "
		if left := time.Until(end); left > 0 {
			text += fmt.Sprintf("%s is freed %s before its --min-hold is over", name, short(left))
		} else {
			text += name + " may stay taken until its TTL is over"
		}
		h.a.report("release", text, map[string]any{"name": o.name})
	}
}

// keptUntil is until when we have to live for --min-hold: on stores whose holds
// end with their process. It is in the past if there is nothing to keep.
func (h *held) keptUntil(o *runOptions) time.Time {
	if h.client.Properties().Bound != driver.ByConnection || !h.lease.Valid() {
		return time.Time{}
	}
	return h.granted.Add(o.lock.minHold)
}
