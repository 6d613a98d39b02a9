package driver

import (
	"context"
	"errors"
)

// Kind is what an error of a store means to a caller.
type Kind uint8

// The kinds of errors.
const (
	// Indeterminate: the request may or may not have been applied.
	Indeterminate Kind = iota
	// Unavailable: the store could not be asked; the request was surely not
	// applied, and the same one may succeed later.
	Unavailable
	// Denied: the store refuses this client.
	Denied
	// Conflict: the name is used for another kind of thing.
	Conflict
	// Invalid: the request can never succeed.
	Invalid
	// Unsupported: the store cannot do this.
	Unsupported
	// Canceled: the caller's ctx ended, and the request was surely not applied.
	Canceled
)

var kindNames = [...]string{"indeterminate", "unavailable", "denied", "conflict", "invalid", "unsupported", "canceled"}

// String gives the kind's name.
func (k Kind) String() string { return name(kindNames[:], int(k)) }

// Failure is an error with its kind, for drivers that have no client library
// whose errors they would have to look into. [KindOf] finds it.
type Failure struct {
	Kind Kind
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// KindOf finds the kind of an error: a [Failure]'s, else Indeterminate. A ctx
// that ended may have cut a request half-way.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Kind
	}
	return Indeterminate
}

// LocalKindOf is KindOf for stores whose calls are never cut half-way: a ctx
// that ended means that nothing was done.
func LocalKindOf(err error) Kind {
	if _, ok := errors.AsType[*Failure](err); !ok && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return Canceled
	}
	return KindOf(err)
}
