package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// The defaults. docs/defaults.md is generated from this table.
const (
	DefaultTTL        = 30 * time.Second
	MinTTL            = 200 * time.Millisecond
	MaxTTL            = 24 * time.Hour
	MaxNameBytes      = 512 // of a name
	MaxLabelBytes     = 256 // of a label
	MaxPermits        = 1 << 20
	renewFraction     = 3 // a renewal every TTL/3
	driftPercent      = 1 // trusted difference of two clocks' rates
	minMargin         = 50 * time.Millisecond
	marginFraction    = 50              // margin: max(minMargin, TTL/50)
	localCheck        = 2 * time.Second // of a hold that only the process bounds
	releaseBudget     = 5 * time.Second
	claimWindow       = 3 * time.Second
	bareTime          = 2 * time.Second // until the store learns the token, at most
	beatEarly         = time.Second     // the first beats of a place
	beatEarlyCount    = 3
	beatLate          = 10 * time.Second // the later ones
	beatRankStep      = 50 * time.Millisecond
	turnHandOvers     = 255 // local hand-overs in a turn; the local sequence is one byte
	turnTime          = 10 * time.Millisecond
	longWait          = 10 * time.Second
	maxRequestTimeout = 2 * time.Second // and at most TTL/3
	pollMin           = 20 * time.Millisecond
	pollMax           = time.Second
	graceFraction     = 6           // of an election: TTL/6
	termPauseMin      = time.Second // after a term that failed
	termPauseMax      = 30 * time.Second
	observeEvery      = time.Second / 2 // looks of an observer
	observeLocal      = 100 * time.Millisecond
	observeWatched    = 10 * time.Second // where the store tells of changes
	staleFor          = time.Second      // until an older leader is believed
	restoredFor       = 10 * time.Second // the same, where tokens fall only if a backup was restored
)

// Mode is how a name is held: [Exclusive], [Shared], or [Permits] of a
// semaphore.
type Mode = driver.Mode

// The modes of a hold. AcquireOptions.Permits implies Permits; zero otherwise
// means Exclusive.
const (
	Exclusive = driver.Exclusive
	Shared    = driver.Shared
	Permits   = driver.Permits
)

// Class is a store's guarantee class; see docs/guarantees.md.
type Class = driver.Class

// The guarantee classes, weakest first.
const (
	ClassNone = driver.ClassNone
	ClassD    = driver.ClassD
	ClassC    = driver.ClassC
	ClassB    = driver.ClassB
	ClassA    = driver.ClassA
)

// Options configure a [Client]. The zero value and nil mean the defaults.
type Options struct {
	// Prefix keeps two applications in one store apart: clients of different
	// prefixes never meet. At most 64 of the characters a-z, A-Z, 0-9, '.',
	// '_', '-'. In a URL: ?prefix=.
	Prefix string
	// Require makes New and Open fail on a store that promises less.
	Require Require
	// TTL is used where AcquireOptions.TTL is zero; default 30 s.
	TTL time.Duration
	// RequestTimeout bounds one request to the store; default 2 s. It is cut to
	// TTL/3 of the lease that it is about; one over TTL/3 of Options.TTL is
	// ErrInvalid.
	RequestTimeout time.Duration
	// Label says who we are to people who look at the lock; default
	// "host/program[pid]". At most 256 bytes.
	Label string
	// NoLocalHandOver sends every release to the store, even if a goroutine of
	// this process waits next in line.
	NoLocalHandOver bool
	// LeaveOnClose makes Close end the leases here without releasing them in
	// the store, where they run out (at once where they live by our connection
	// or process, as on the file store).
	LeaveOnClose bool
	// Observe, if set, is told what happens; see [Event]. It is called on the
	// goroutine where it happens, without a lock; a slow one delays what that
	// goroutine does next, and it must not call Close. ctx carries the values of
	// the acquire's ctx.
	Observe func(ctx context.Context, e Event)
	// Logger gets a line for a long wait, a wait for a store that is down, a lost
	// lease and what Close had to leave; default slog.Default().
	Logger *slog.Logger
}

// Require is the least that a store must promise.
type Require struct {
	Class   Class
	Fencing bool // tokens are not 0
	Fair    bool // waiters are served in order of arrival
}

// AcquireOptions shape one acquire. The zero value and nil mean an exclusive,
// fair, self-renewing lease with the client's TTL and no bound on the wait
// besides ctx.
type AcquireOptions struct {
	// Mode is Exclusive (also if zero) or Shared; leave it zero for permits.
	Mode Mode
	// Permits of Limit make the name a semaphore; 1 <= Permits <= Limit <= 2^20.
	// All users of a name must agree on the limit (ErrConflict).
	Permits, Limit int
	// TTL is how long the lease lives without proof of life, from 200 ms to
	// 24 h; 0 means the client's. It is renewed every TTL/3.
	TTL time.Duration
	// NoRenew makes a lease that ends by itself: the store frees the name after
	// TTL, and the lease is trusted until a little before (see Lease.Deadline).
	NoRenew bool
	// MaxHold ends the lease so long after its grant, renewed or not; 0: never.
	// At least 200 ms.
	MaxHold time.Duration
	// MinHold keeps the name taken so long after the grant even if it is
	// released, or the process crashes, sooner (a crash frees early on stores
	// that are bound to a connection). At most 24 h, MaxHold, and what the store
	// takes as a TTL.
	MinHold time.Duration
	// Wait bounds the wait besides ctx; 0: no bound. A last attempt is made at
	// its end, and takes at most a tenth of it, or 50 ms. The error is ErrTimeout.
	Wait time.Duration
	// Tries makes at most so many attempts, with a jittered pause between
	// them, and takes no place in the queue; 0: no bound. The error is ErrHeld.
	Tries int
	// Unfair takes no place in the queue and may overtake those who did, where
	// the store allows it. Unfair goroutines of one client stand in a line of
	// their own.
	Unfair bool
	// Label overrides Options.Label.
	Label string
	// Reentrant lets an acquire made with the context of a lease of the same
	// name, or with its Key, share that lease's hold. Exclusive covers Shared. The
	// hold lives at least the TTL that any of them asked for; MinHold and MaxHold
	// are those of the first.
	Reentrant bool
	// Key is the reentrancy key for callers that do not have the lease's
	// context. It implies Reentrant, is only compared within this client, and
	// never sent to the store.
	Key string

	elects bool // asked by an Election
}

// validate reports every problem at once.
func (o *Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !validPrefix(o.Prefix) {
		bad("prefix %q: at most 64 of a-z, A-Z, 0-9, '.', '_', '-'", o.Prefix)
	}
	if err := validTTL("ttl", o.TTL); o.TTL != 0 && err != nil {
		errs = append(errs, err)
	}
	ttl := o.TTL
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if o.RequestTimeout < 0 || o.RequestTimeout > ttl/renewFraction {
		bad("request timeout %v: must be from 0 to ttl/3 (%v)", o.RequestTimeout, ttl/renewFraction)
	}
	if err := validLabel(o.Label); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// validate reports every problem of the options and the name at once.
func (o *AcquireOptions) validate(name string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := validName(name); err != nil {
		errs = append(errs, err)
	}
	switch {
	case o.Permits == 0 && o.Limit == 0:
		if o.Mode > Shared {
			bad("mode %d: must be Exclusive or Shared; for permits set Permits and Limit", o.Mode)
		}
	case o.Mode != 0:
		bad("mode and permits: a name is either a lock or a semaphore")
	case o.Permits < 1 || o.Limit < 1 || o.Permits > o.Limit || o.Limit > MaxPermits:
		bad("permits %d of %d: must be 1 <= permits <= limit <= %d", o.Permits, o.Limit, MaxPermits)
	}
	if o.TTL != 0 {
		if err := validTTL("ttl", o.TTL); err != nil {
			errs = append(errs, err)
		}
	}
	if o.MaxHold != 0 {
		if err := validTTL("max hold", o.MaxHold); err != nil {
			errs = append(errs, err)
		}
	}
	if o.MinHold < 0 || o.MinHold > MaxTTL {
		bad("min hold %v: must be from 0 to %v", o.MinHold, MaxTTL)
	}
	if o.MaxHold != 0 && o.MinHold > o.MaxHold {
		bad("min hold %v is over max hold %v", o.MinHold, o.MaxHold)
	}
	if o.Wait < 0 || o.Tries < 0 {
		bad("wait and tries must not be negative")
	}
	if (o.Reentrant || o.Key != "") && o.Permits > 0 {
		bad("reentrant: not for permits")
	}
	if err := validLabel(o.Label); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func validPrefix(prefix string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(prefix) <= 64 && strings.Trim(prefix, allowed) == ""
}

func validTTL(what string, d time.Duration) error {
	if d < MinTTL || d > MaxTTL {
		return fmt.Errorf("%s %v: must be from %v to %v", what, d, MinTTL, MaxTTL)
	}
	return nil
}

func validLabel(label string) error {
	if len(label) > MaxLabelBytes || !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl) {
		return fmt.Errorf("label: must be UTF-8 of at most %d bytes, without control characters", MaxLabelBytes)
	}
	return nil
}

func validName(name string) error {
	switch {
	case name == "":
		return errors.New("name is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("name of %d bytes: must be at most %d", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return errors.New("name is not valid UTF-8")
	case strings.ContainsRune(name, 0):
		return errors.New("name holds a NUL byte") // not every store can list it
	}
	return nil
}
