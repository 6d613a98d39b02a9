package storetest

import (
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Heard writes down what a driver signals: give its Note to Listen.
type Heard struct {
	mu      sync.Mutex
	signals []driver.Signal
}

// Note writes a signal down.
func (h *Heard) Note(sig driver.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signals = append(h.signals, sig)
}

// Of lists the signals of one kind to one owner.
func (h *Heard) Of(kind driver.SignalKind, owner driver.Owner) (found []driver.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sig := range h.signals {
		if sig.Kind == kind && sig.Owner == owner {
			found = append(found, sig)
		}
	}
	return found
}

// Has tells whether there is one.
func (h *Heard) Has(kind driver.SignalKind, owner driver.Owner) bool {
	return len(h.Of(kind, owner)) > 0
}
