package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// held is what a command runs under: a lease of ours, or none if an enclosing
// run of the same name has one.
type held struct {
	a      *app
	client *holdfast.Client
	lease  *holdfast.Lease
	at     place
	env    []string      // the variables that tell the command of it
	locks  []*os.File    // descriptors that hold the lock
	renews chan struct{} // the deadline may have moved

	granted time.Time
}

// storePatience is how long a wait bears that the store does not answer.
const storePatience = 10 * time.Second

// errStoreSilent is why a wait was called off that the store does not answer.
var errStoreSilent = errors.New("the store does not answer")

// take acquires the lock for holdfast run.
func (a *app) take(o *runOptions, parent *enclosing, signals *signals) (*held, error) {
	if parent != nil {
		return &held{a: a, env: parent.env}, nil
	}
	ctx, done := signals.context()
	defer done()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	h := &held{a: a, renews: make(chan struct{}, 1)}
	w := &waitTeller{a: a, name: o.name, label: o.lock.label}
	client, at, err := a.open(ctx, &o.common, holdfast.Options{
		TTL: o.lock.ttl,
		Observe: func(_ context.Context, e holdfast.Event) {
			h.observe(&e, w, giveUp)
		},
	})
	if err != nil {
		return nil, calledOff(ctx, err)
	}
	h.client, h.at = client, at
	if a.json || isTerminal(a.stderr) { // else it may be mailed, each time anew
		a.warnOf(client)
	}
	stop := w.start(client)
	if o.lock.try {
		h.lease, err = client.TryAcquire(ctx, o.name, o.lock.options())
	} else {
		h.lease, err = client.Acquire(ctx, o.name, o.lock.options())
	}
	stop()
	if err == nil {
		h.granted = time.Now()
		err = h.prepare(o)
	}
	if err != nil {
		err = explain(client, o.name, calledOff(ctx, err))
		_ = client.Close() // nothing is held; the reason is told already
		return nil, err
	}
	return h, nil
}

// calledOff puts a signal, or our own reason, before what it led to.
func calledOff(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if sig, ok := errors.AsType[signalError](cause); ok {
		return sig
	}
	if errors.Is(cause, errStoreSilent) {
		return fmt.Errorf("%w: %w", holdfast.ErrUnavailable, cause)
	}
	return err
}

// observe hears from the client what concerns the hold and the wait.
func (h *held) observe(e *holdfast.Event, w *waitTeller, giveUp context.CancelCauseFunc) {
	switch e.Kind {
	case holdfast.EventRenewed:
		select {
		case h.renews <- struct{}{}:
		default:
		}
	case holdfast.EventStoreDown:
		w.silent(e, giveUp)
	case holdfast.EventLongWait:
		if errors.Is(e.Err, holdfast.ErrUnavailable) {
			return // that is told already
		}
		w.long(e, h.client.Properties().Wait == driver.ByPlaces)
	default:
	}
}

// prepare readies what the guard and the command get of the lease.
func (h *held) prepare(o *runOptions) error {
	h.env = []string{
		"HOLDFAST_NAME=" + o.name,
		"HOLDFAST_TOKEN=" + strconv.FormatUint(h.lease.Token(), 10),
		"HOLDFAST_OWNER=" + h.lease.Owner(),
		"HOLDFAST_STORE=" + h.at.shown,
	}
	inheritor, ok := h.client.Store().(driver.Inheritor)
	if !ok {
		return nil
	}
	owner, err := parseOwner(h.lease.Owner())
	if err == nil {
		h.locks, err = inheritor.Inherit(owner)
	}
	return err
}

// closeLocks closes our copies of the descriptors that hold the lock.
func (h *held) closeLocks() {
	for _, f := range h.locks {
		_ = f.Close()
	}
	h.locks = nil
}

// until is when the lease ends; false if it has no end of its own.
func (h *held) until() (time.Duration, bool) {
	if h.lease == nil {
		return 0, false
	}
	end, ok := h.lease.Deadline()
	return time.Until(end), ok
}
