package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

const (
	// liveness is how long something may take that must happen at all. It is
	// generous: a busy machine is no fault of a store.
	liveness = 20 * time.Second
	// caseLimit ends a case that hangs.
	caseLimit = 2 * time.Minute
	// patientLimit is the same where time costs nothing.
	patientLimit = 6 * time.Hour
	// steadyTTL outlasts a stall of 2 s of this process, the store or its disk: so
	// much is left of it when the first renewal is due, also if that was sent in vain.
	steadyTTL = 4 * time.Second
	// answerTime is how long a client of a case waits for an answer to a request
	// whose TTL allows it. The default of 2 s is too short on a busy machine.
	answerTime = 10 * time.Second
)

// T is one run of one case.
type T struct {
	ctx    context.Context // ends with the case
	cancel context.CancelFunc
	h      *Harness
	c      *Case
	run    string // makes the names of this run its own
	props  driver.Properties

	mu       sync.Mutex
	errs     []error
	cleanups []func()
	names    int
	wg       sync.WaitGroup
}

// Run runs the case alone and returns what is wrong.
func (c *Case) Run(ctx context.Context, h Harness) error { return c.run(ctx, &h) }

func (c *Case) run(ctx context.Context, h *Harness) error {
	limit := caseLimit
	if h.Patient {
		limit = patientLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var id [8]byte
	rand.Read(id[:])
	t := &T{ctx: ctx, cancel: cancel, h: h, c: c, run: hex.EncodeToString(id[:])}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.clean()
		defer t.caught()
		t.props = t.peer().Properties()
		c.Func(t)
	}()
	<-done
	return errors.Join(t.errs...)
}

// caught turns a panic into a failure: in a program that calls Check it must
// not end the program. Goexit, by Fatalf, passes.
func (t *T) caught() {
	if p := recover(); p != nil {
		t.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// clean ends what a failed case may have left waiting, and undoes, last first.
func (t *T) clean() {
	t.cancel()
	t.wg.Wait()
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		undo := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		undo()
	}
}

// Errorf notes a failure and goes on.
func (t *T) Errorf(format string, args ...any) {
	_, file, line, _ := runtime.Caller(1)
	where := caller(file, line)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.errs) < 10 { // the rest would say the same
		t.errs = append(t.errs, fmt.Errorf("%s%s", where, fmt.Sprintf(format, args...)))
	}
}

// caller is the line of the case that complains, outside of the helpers.
func caller(file string, line int) string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "(*T).") && !strings.Contains(f.Function, "(*peer).") {
			file, line = f.File, f.Line
			break
		}
		if !more {
			break
		}
	}
	return fmt.Sprintf("%s:%d: ", file[strings.LastIndexByte(file, '/')+1:], line)
}

// Fatalf notes a failure and ends the goroutine, which is the case or was
// started by Go.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Cleanup undoes something after the case, last first.
func (t *T) Cleanup(undo func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, undo)
}

// Go runs f in a goroutine, which the case waits for. The channel is closed
// when f has returned.
func (t *T) Go(f func()) <-chan struct{} {
	done := make(chan struct{})
	t.wg.Go(func() {
		defer close(done)
		defer t.caught()
		f()
	})
	return done
}

// await waits for a channel to be closed.
func (t *T) await(done <-chan struct{}, what string) {
	select {
	case <-done:
	case <-time.After(liveness):
		t.Fatalf("%s: nothing after %v", what, liveness)
	}
}

// eventually polls until ok, and fails if that takes too long.
func (t *T) eventually(what string, ok func() bool) {
	if !t.comes(ok) {
		t.Fatalf("%s: not after %v", what, liveness)
	}
}

func (t *T) comes(ok func() bool) bool {
	pause := time.Millisecond
	for end := time.Now().Add(liveness); !ok(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(end) || t.ctx.Err() != nil {
			return false
		}
		t.pause(pause)
	}
	return true
}

// prompt asserts, where time costs nothing, that nothing had to lapse and
// nothing was polled for until now: what took any time waited for something.
func (t *T) prompt(begin time.Time, what string) {
	if took := time.Since(begin); t.h.Patient && took > time.Second/2 {
		t.Errorf("%s took %v, and had nothing to wait for", what, took)
	}
}

// pause lets time pass where a case is about time itself.
func (t *T) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
	}
}

// TTL is short: a lease of it that is not renewed lapses soon.
func (t *T) TTL() time.Duration { return t.h.ttl(&t.props) }

// Steady is a TTL within which a renewal is never late for want of a core.
func (t *T) Steady() time.Duration { return max(steadyTTL, 3*t.TTL()) }

// Long is a TTL that does not end within a case, or the longest that there is.
func (t *T) Long() time.Duration {
	if longest := t.props.MaxTTL; longest != 0 {
		return min(longTTL, longest)
	}
	return longTTL
}

// LockName is a fresh name for a Client.
func (t *T) LockName() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names++
	return fmt.Sprintf("conformance/%s/%s/%d", t.run, t.c.ID, t.names)
}

// Name is a fresh name for a Store, valid on all.
func (t *T) Name() driver.Name { return named(t.LockName()) }

// named makes the key of a name, portable as package holdfast would make it,
// but never the same one.
func named(full string) driver.Name {
	key := strings.NewReplacer("/", "~").Replace(strings.ToLower(full))
	return driver.Name{Key: key, Full: full}
}

// Open is a new client of the store that the case closes by itself, if at all.
func (t *T) Open() driver.Store {
	store, err := t.h.New(t.ctx)
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	return store
}

// Client is a new holdfast.Client on a new client of the store.
func (t *T) Client() *holdfast.Client { return t.ClientWith(&holdfast.Options{}) }

// ClientWith is Client with options.
func (t *T) ClientWith(o *holdfast.Options) *holdfast.Client {
	patient := *o
	patient.RequestTimeout = cmp.Or(o.RequestTimeout, answerTime)
	return t.clientOf(t.Open(), &patient)
}

// clientOf closes what it makes when the case is over; a Close that does not
// return is a failure.
func (t *T) clientOf(store driver.Store, opts *holdfast.Options) *holdfast.Client {
	o := holdfast.Options{}
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := holdfast.New(store, &o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Close() // what Close must say is the business of its own cases
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("Close did not return within a minute")
		}
	})
	return c
}
