package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// The errors that a caller decides by; test with errors.Is. Errors of this
// package are *Error values that match one of them and, through errors.As,
// the store's own error.
var (
	// ErrHeld: somebody else holds the name. Error.Holder says who, if the
	// store tells.
	ErrHeld = errors.New("held by another")
	// ErrTimeout: the wait ran out. The error also matches ErrHeld or
	// ErrUnavailable, whichever was the case last, and
	// context.DeadlineExceeded if it was the ctx that ended the wait.
	ErrTimeout = errors.New("wait ran out")
	// ErrLost: the lease is no longer provably held; another may hold the name.
	ErrLost = errors.New("lease lost")
	// ErrBroken: a person revoked the lease. It matches ErrLost as well.
	ErrBroken = fmt.Errorf("lease broken: %w", ErrLost)
	// ErrReleased: the lease was released, or handed on as a handle.
	ErrReleased = errors.New("lease released")
	// ErrNotHeld: nobody holds the name, or not under the token given.
	ErrNotHeld = errors.New("not held")
	// ErrUnavailable: the store could not be asked; nothing was applied.
	ErrUnavailable = errors.New("store unavailable")
	// ErrIndeterminate: the store may or may not have applied the request.
	// What it may have left behind is undone in the background.
	ErrIndeterminate = errors.New("outcome unknown")
	// ErrUnsupported: the store cannot do this.
	ErrUnsupported = errors.New("not supported by the store")
	// ErrInvalid: an argument, option or URL can never work.
	ErrInvalid = errors.New("invalid")
	// ErrDenied: the store refuses this client.
	ErrDenied = errors.New("denied by the store")
	// ErrConflict: the name is used for another kind of thing, or an acquire
	// would wait for the very lease its context belongs to.
	ErrConflict = errors.New("conflict")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client closed")
)

// Error is the error type of this package.
type Error struct {
	Op     string  // "acquire", "renew", "release", "break", …
	Name   string  // of the lock; "" if none is concerned
	Store  string  // e.g. "redis"
	Kind   error   // one of the Err values, or a context error
	Err    error   // the cause, nil if Kind says all
	Holder *Holder // who holds the name, with ErrHeld, if the store tells
}

// Error gives one line, without secrets.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("holdfast: " + e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	if e.Store != "" {
		b.WriteString(" on " + e.Store)
	}
	b.WriteString(": " + e.Kind.Error())
	if e.Err != nil {
		b.WriteString(": " + strings.ReplaceAll(e.Err.Error(), "\n", "; ")) // joined errors
	}
	if e.Holder != nil {
		fmt.Fprintf(&b, " (%s)", e.Holder)
	}
	return b.String()
}

// Unwrap gives the kind and the cause, so that errors.Is and errors.As find
// both.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Timeout tells whether a wait ran out, as net.Error does.
func (e *Error) Timeout() bool {
	return errors.Is(e, ErrTimeout) || errors.Is(e, context.DeadlineExceeded)
}

// kindError maps a driver's kind to the sentinel that callers test for.
func kindError(k driver.Kind) error {
	switch k {
	case driver.Unavailable:
		return ErrUnavailable
	case driver.Denied:
		return ErrDenied
	case driver.Conflict:
		return ErrConflict
	case driver.Invalid:
		return ErrInvalid
	case driver.Unsupported:
		return ErrUnsupported
	case driver.Canceled, driver.Indeterminate:
	}
	return ErrIndeterminate
}

// transient tells whether the same request may succeed later.
func transient(k driver.Kind) bool {
	return k == driver.Unavailable || k == driver.Indeterminate || k == driver.Canceled
}

// retriable tells whether a further attempt may succeed.
func retriable(err error) bool {
	return errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrIndeterminate)
}

// textError is an error that is nothing but its text.
type textError string

func (e textError) Error() string { return string(e) }
