package holdfast

import (
	"time"
)

// EventKind is what happened.
type EventKind uint8

// The events.
const (
	EventAcquired    EventKind = iota + 1 // Took: how long the acquire took
	EventRefused                          // an acquire failed: Err, Took
	EventLongWait                         // an acquire waits for 10 s: Holder, Ahead, Took
	EventHandedOver                       // acquired from a goroutine of this process
	EventRenewed                          // Left: what was left of the deadline before
	EventRenewFailed                      // a renewal got no answer, and is retried: Err, Left
	EventLost                             // Err says why; matches ErrBroken if a person did it
	EventReleased                         // Took: how long it was held; Err: the store did not answer yet
	EventAbandoned                        // an attempt of unknown outcome was undone, or not (Err)
)

func (k EventKind) String() string {
	return [...]string{"none", "acquired", "refused", "long wait", "handed over", "renewed", "renew failed", "lost", "released", "abandoned"}[k]
}

// Event tells a hook what happened, for logs, metrics and traces. Fields that
// do not concern the kind are zero.
type Event struct {
	Kind   EventKind
	Store  string
	Name   string
	Mode   Mode
	Token  uint64
	Took   time.Duration
	Left   time.Duration
	Holder *Holder
	Ahead  int
	Err    error
}
