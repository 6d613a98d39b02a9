package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

// handleOptions are what acquire, renew, release and check were asked to do.
type handleOptions struct {
	common
	lock         lockOptions
	name, handle string
}

func (a *app) acquireMain(args []string) int {
	o := &handleOptions{}
	f := a.newFlags()
	f.common(&o.common)
	o.lock.define(f)
	rest, done := f.parse(args)
	if done {
		return exitOK
	}
	o.name = f.name(rest)
	o.lock.validate(f)
	o.reachable(f)
	if f.failed() {
		return exitUsage
	}
	return a.withHandles(o, a.acquire)
}

func (a *app) renewMain(args []string) int   { return a.handleMain(args, a.renew) }
func (a *app) releaseMain(args []string) int { return a.handleMain(args, a.release) }
func (a *app) checkMain(args []string) int   { return a.handleMain(args, a.check) }

// handleMain reads the arguments of a command that takes a handle.
func (a *app) handleMain(args []string, do handleFunc) int {
	o := &handleOptions{}
	f := a.newFlags()
	f.common(&o.common)
	if a.command == "renew" {
		f.duration(&o.lock.ttl, "ttl", holdfast.MinTTL, "extend it to so much `time` from now; default 30s")
	}
	rest, done := f.parse(args)
	if done {
		return exitOK
	}
	if env := a.getenv("HOLDFAST_HANDLE"); len(rest) == 0 && env != "" {
		rest = []string{env}
	}
	o.handle = f.one("HANDLE (or HOLDFAST_HANDLE)", rest)
	o.reachable(f)
	if f.failed() {
		return exitUsage
	}
	return a.withHandles(o, do)
}

// handleFunc does one of the commands on an open store.
type handleFunc func(context.Context, *holdfast.Client, *handleOptions) error

// withHandles opens the store for one of them.
func (a *app) withHandles(o *handleOptions, do handleFunc) int {
	signals := catchSignals()
	defer signals.stop()
	ctx, done := signals.context()
	defer done()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	w := &waitTeller{a: a, name: o.name}
	client, _, err := a.open(ctx, &o.common, holdfast.Options{TTL: o.lock.ttl, Observe: func(_ context.Context, e holdfast.Event) {
		if e.Kind == holdfast.EventStoreDown {
			w.silent(&e, giveUp)
		}
	}})
	if err != nil {
		return a.fail(err)
	}
	if p := client.Properties(); !p.Handles {
		_ = client.Close() // it holds nothing
		return a.fail(&holdfast.Error{
			Op: a.command, Store: p.Store, Kind: holdfast.ErrUnsupported,
			Err: fmt.Errorf("the %s store has no handles: its locks live by their process; use holdfast run", p.Store),
		})
	}
	err = calledOff(ctx, do(ctx, client, o))
	if cerr := client.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return a.refused(&runOptions{name: o.name, lock: o.lock}, err)
	}
	return exitOK
}

func (a *app) acquire(ctx context.Context, client *holdfast.Client, o *handleOptions) error {
	opts := o.lock.options()
	acquire := client.Acquire
	if o.lock.try {
		acquire = client.TryAcquire
	}
	lease, err := acquire(ctx, o.name, opts)
	if err != nil {
		return explain(client, o.name, calledOff(ctx, err))
	}
	handle, err := a.handOut(lease)
	if err == nil && a.out.failed() { // nobody knows the handle
		err = a.release(context.WithoutCancel(ctx), client, &handleOptions{handle: handle})
	}
	return err
}

// handOut ends the lease here and prints its handle.
func (a *app) handOut(lease *holdfast.Lease) (handle string, err error) {
	left := time.Duration(0)
	if end, ok := lease.Deadline(); ok {
		left = time.Until(end)
	}
	if handle, err = lease.Handle(); err != nil {
		return "", err
	}
	token := strconv.FormatUint(lease.Token(), 10)
	if a.json {
		a.print(map[string]any{
			"name": lease.Name(), "handle": handle, "token": token, "owner": lease.Owner(), "left_ms": left.Milliseconds(),
		})
		return handle, nil
	}
	fmt.Fprintf(a.out, "HOLDFAST_HANDLE=%s\nHOLDFAST_TOKEN=%s\nHOLDFAST_NAME=%s\n", shellQuote(handle), token, shellQuote(lease.Name()))
	return handle, nil
}

// shellQuote makes a word of any text for sh.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// adopt takes the lease of a handle. Its errors are the command's: who typed release
// knows of no adoption.
func (a *app) adopt(ctx context.Context, client *holdfast.Client, o *handleOptions) (*holdfast.Lease, error) {
	lease, err := client.Adopt(ctx, o.handle)
	if e, ok := errors.AsType[*holdfast.Error](err); ok {
		told := *e
		told.Op = a.command
		return nil, &told
	}
	return lease, err
}

func (a *app) renew(ctx context.Context, client *holdfast.Client, o *handleOptions) error {
	lease, err := a.adopt(ctx, client, o)
	if err != nil {
		return err
	}
	if err = lease.Renew(ctx, cmp.Or(o.lock.ttl, holdfast.DefaultTTL)); err != nil {
		_, herr := lease.Handle() // it stays as it was, for another try
		return errors.Join(err, herr)
	}
	_, err = a.handOut(lease)
	return err
}

func (a *app) release(ctx context.Context, client *holdfast.Client, o *handleOptions) error {
	lease, err := a.adopt(ctx, client, o)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// check adopts, which asks the store and extends the lease.
func (a *app) check(ctx context.Context, client *holdfast.Client, o *handleOptions) error {
	lease, err := a.adopt(ctx, client, o)
	if err != nil {
		return err
	}
	if a.quiet {
		_, err = lease.Handle()
		return err
	}
	_, err = a.handOut(lease)
	return err
}
