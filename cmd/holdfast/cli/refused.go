package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

// refusedError is why there is no lock, with who has the name.
type refusedError struct {
	err    error
	record *holdfast.Record // nil if the store did not tell
}

func (r *refusedError) Error() string { return r.err.Error() }
func (r *refusedError) Unwrap() error { return r.err }

// explainFor bounds the question who has the name: the answer is a courtesy.
const explainFor = 2 * time.Second

// explain asks who has the name now. What the wait learned may be old.
func explain(client *holdfast.Client, name string, err error) error {
	if errors.Is(err, holdfast.ErrUnavailable) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), explainFor)
	defer cancel()
	r := &refusedError{err: err}
	if record, ierr := client.Inspect(ctx, name); ierr == nil {
		r.record = &record
	}
	return r
}

// recordOf is who has the name that an error is about; nil if nobody told.
func recordOf(err error) *holdfast.Record {
	if r, ok := errors.AsType[*refusedError](err); ok && r.record != nil {
		return r.record
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok && e.Holder != nil {
		return &holdfast.Record{Name: e.Name, Holders: []holdfast.Holder{*e.Holder}}
	}
	return nil
}

// refused tells why there is no lock, and gives the exit status.
func (a *app) refused(o *runOptions, err error) int {
	record, fields := recordOf(err), map[string]any{"name": o.name}
	text := printable(o.name) + " " + holdersText(record)
	if record != nil && len(record.Holders) > 0 {
		fields["holder"] = newHolderJSON(&record.Holders[0])
	}
	if sig, ok := errors.AsType[signalError](err); ok {
		doing := " while waiting: " + text
		switch {
		case o.name == "": // of a command that takes a handle
			doing = ""
		case record == nil:
			doing = " while waiting for " + printable(o.name)
		}
		return a.interruptedBy(syscall.Signal(sig), doing, fields)
	}
	code := exitOf(err)
	if kind := otherKind(record, &o.lock); code == exitUsage && errors.Is(err, holdfast.ErrConflict) && kind != "" {
		fields["exit"] = code
		a.report("error", printable(o.name)+kind, fields)
		return code
	}
	if code != exitBusy && code != exitTimeout {
		return a.fail(err)
	}
	if code == exitTimeout {
		text = fmt.Sprintf("waited %s in vain: %s", human(o.lock.wait), text)
	}
	switch {
	case o.skipBusy:
		fields["exit"] = exitOK
		a.say("busy", text+"; skipped", fields)
		return exitOK
	case o.exitBusy != 0:
		code = o.exitBusy
	}
	fields["exit"] = code
	a.report("busy", text, fields)
	return code
}

// otherKind says as what a name is held if that is not what was asked for.
func otherKind(r *holdfast.Record, o *lockOptions) string {
	switch {
	case r == nil || len(r.Holders) == 0:
		return ""
	case r.Limit > 0 && o.slots == 0:
		return " is a semaphore of " + permits(r.Limit) + ", not a lock"
	case r.Limit == 0 && o.slots > 0:
		return " is a lock, not a semaphore"
	case r.Limit != o.slots:
		return fmt.Sprintf(" is a semaphore of %s, not of %d", permits(r.Limit), o.slots)
	}
	return ""
}

// holdersText says who has a name.
func holdersText(r *holdfast.Record) string {
	switch {
	case r == nil:
		return "is held"
	case len(r.Holders) == 0 && len(r.Waiters) > 0:
		return "is free, but others wait for it"
	case len(r.Holders) == 0:
		return "was held until this moment"
	case r.Limit > 0:
		text := fmt.Sprintf("has %s permits held, by %s", holdersOf(r), describeHolder(&r.Holders[0]))
		if len(r.Holders) > 1 {
			text += "; and others"
		}
		return text
	}
	text := "is held by " + describeHolder(&r.Holders[0])
	if more := len(r.Holders) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// interruptedBy tells of the signal that ended us, and gives the exit status.
func (a *app) interruptedBy(sig syscall.Signal, doing string, fields map[string]any) int {
	code := exitSignal + int(sig)
	if fields == nil {
		fields = map[string]any{}
	}
	fields["exit"], fields["signal"] = code, signalName(sig)
	a.say("interrupted", "interrupted by "+signalName(sig)+doing, fields)
	return code
}

// interrupted is interruptedBy for a context that a signal ended.
func (a *app) interrupted(ctx context.Context, doing string) int {
	if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		return a.interruptedBy(syscall.Signal(sig), doing, nil)
	}
	return exitInternal
}

// lossReason is why a lease ended, without the library's frame; who is the
// person who broke it, "" if none is named.
func lossReason(cause error) (reason, who string) {
	for {
		e, ok := cause.(*holdfast.Error) //nolint:errorlint // layer by layer
		if !ok || e.Err == nil {
			break
		}
		cause = e.Err
	}
	if cause == nil {
		return "", ""
	}
	return cutBy(cause.Error())
}
