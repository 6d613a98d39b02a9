package driver

import "time"

// Owner names one attempt and, if it is granted, one hold: 128 random bits,
// never used again.
type Owner [16]byte

// Mode is what kind of hold is asked for.
type Mode uint8

// The modes. A name is either a lock, held exclusive or shared, or a
// semaphore of one limit.
const (
	Exclusive Mode = iota + 1
	Shared
	Permits
)

var modeNames = [...]string{"none", "exclusive", "shared", "permits"}

// String gives the mode's name.
func (m Mode) String() string { return name(modeNames[:], int(m)) }

// MarshalText gives the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func name(names []string, i int) string {
	if i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// Name is what is locked. Key identifies it in the store, within the limits
// of [Properties.Names]; two names never have one key. Full is what the user
// called it, kept in the record for listing, Prefix the application's.
type Name struct {
	Key, Full, Prefix string
}

// Ref is a grant or a place of an owner. Token is the store token of the
// grant (see [Grant]), 0 if it is not known or the store gives none; then the
// owner alone is compared.
type Ref struct {
	Name  Name
	Owner Owner
	Mode  Mode
	Token uint64
}

// AcquireRequest asks for one grant.
type AcquireRequest struct {
	Name  Name
	Owner Owner
	Label string // who asks, for people: host, pid, program
	Mode  Mode
	// N of Limit permits are asked for; both are 0 unless Mode is Permits.
	N, Limit int
	// TTL is the window asked for, between [Properties.MinTTL] and MaxTTL. A
	// store rounds it up to its granularity.
	TTL time.Duration
	// Queue asks a [Queuer] for a place if the name cannot be granted. Without
	// it the attempt also fails if somebody waits, so that nobody is overtaken,
	// unless Unfair is set.
	Queue bool
	// Unfair lets the attempt overtake waiters where the store allows.
	Unfair bool
	// Claim is the window of a grant made to a place by another's release:
	// how long it lives until the first renewal. It means nothing where the
	// window is the session's.
	Claim time.Duration
	// Bare allows a grant whose token the store does not keep yet (see
	// [Grant]), and an attempt that is granted though its owner was abandoned: only
	// the repeated abandon ends that. Where a store has a cheaper way to do no more
	// than this, it may take it.
	Bare bool
}

// Status is the answer to an attempt or a heartbeat.
type Status uint8

// The answers.
const (
	Granted Status = iota + 1 // the owner holds the name
	Held                      // somebody else does; nothing was left behind
	Waiting                   // the owner has a place in the queue
	Gone                      // the owner has neither and can get neither any more
)

// Grant is what the store gave.
type Grant struct {
	// Token only grows for a name, is positive and below 2^55 (see
	// [Properties.FinalTokens]); 0 if the store cannot give one. It is made in the atomic step of the grant, or so that
	// no later grant can have a smaller one.
	Token uint64
	// Window is how long the store keeps the grant without a renewal, on its
	// own clock, counted from Sent; if that is zero, from the moment this very
	// request was handled, also a repeated one. It may be less than the store
	// keeps. Where a session's life is the grant's it is at most the TTL asked. 0
	// means as long as the process or connection lives, and is never given
	// [ByLease].
	Window time.Duration
	// Sent is when the latest request was sent that the store surely handled
	// no later than the grant. Zero: package holdfast knows it (the acquire,
	// or the last heartbeat that was answered Waiting). A store whose grants live
	// by a session sets it to the sending of the session's latest answered proof
	// of life, before or after the grant.
	Sent Instant
	// Bare: the store knows the owner, but not yet the token of the grant. Until a
	// renewal, or a look with TTL 0, has brought it, any token is taken for the right
	// one; Inspect gives 0, and a break has to go by the owner. Package holdfast renews
	// such a grant within two seconds. Never without [AcquireRequest.Bare].
	Bare bool
}

// AcquireResult is the answer to an attempt.
type AcquireResult struct {
	Status Status
	Grant  Grant // if Granted
	Queue  Queue // if Held or Waiting, as far as the store tells
	// Leftover: parts of a refused attempt may remain in the store. Package
	// holdfast abandons the owner, and the caller still learns Held.
	Leftover bool
}

// Queue is what an attempt or heartbeat learned about the name.
type Queue struct {
	// Holder is one of those who hold the name, nil if the store does not say.
	Holder *Holder
	// Ahead is how many places are before this one.
	Ahead int
	// Remaining is how long the present grant still runs unless it is renewed
	// or released; 0 if the store does not say. It decides when the next
	// heartbeat is due.
	Remaining time.Duration
	// Again is when the store wants the next heartbeat, where no signal tells of
	// grants; 0: package holdfast decides.
	Again time.Duration
}

// AcquireAnswer is one answer of a batch.
type AcquireAnswer struct {
	AcquireResult
	Err error
}

// RenewRequest extends one grant.
type RenewRequest struct {
	Ref
	// TTL is the window asked for from now. 0 only asks whether the grant is
	// still held, and extends nothing.
	TTL time.Duration
	// Label replaces the one in the record, if it is not empty: after a
	// hand-over inside a process the record then names the heir.
	Label string
}

// RenewStatus is the answer to a renewal.
type RenewStatus uint8

// The answers to a renewal. The zero value goes with an error.
const (
	Renewed RenewStatus = iota + 1 // the grant is the owner's, and runs for Window
	Lost                           // it is not the owner's any more
	Broken                         // it is, but a person has revoked it: see Break
)

// RenewResult is the answer to one renewal.
type RenewResult struct {
	Status RenewStatus
	// Window is how long the grant runs from the moment the store handled the
	// request, at least; 0 as in [Grant].
	Window time.Duration
	// Sent is as in [Grant]: when the proof of life that Window counts from was
	// sent, if it was not this request.
	Sent   Instant
	Reason string // of a break; with Lost: of a forced one, if the store still knows
	Err    error
}

// ReleaseRequest ends one grant or place.
type ReleaseRequest struct {
	Ref
	// Keep leaves the name taken, by nobody, for so long yet. Only lease stores
	// get it.
	Keep time.Duration
	// Abandon says that the attempt may still be on its way: whatever the owner
	// has, grant, place or parked call, ends; and where the store can, it refuses
	// an Acquire of this owner for some seconds. Token is 0 then. See
	// [Properties.Settle].
	Abandon bool
}

// ReleaseAnswer is one answer of a batch.
type ReleaseAnswer struct {
	Released bool
	Err      error
}

// BeatResult is the answer to one heartbeat: Waiting, Granted or Gone.
type BeatResult struct {
	Status Status
	Grant  Grant
	Queue  Queue
	Err    error
}

// SignalKind tells what a signal says.
type SignalKind uint8

// The signals.
const (
	// GrantSignal: the place of Owner was granted, with Grant.
	GrantSignal SignalKind = iota + 1
	// MissedSignal: signals may have been lost (a connection or session was made
	// anew); every place is asked about at once. Owner is zero.
	MissedSignal
	// LostSignal: the grant of Owner is lost; it may only make a loss earlier.
	// Reason is set if a person forced it.
	LostSignal
	// BrokenSignal: the grant of Owner was revoked, with Reason.
	BrokenSignal
)

// Signal is something the store says by itself.
type Signal struct {
	Kind   SignalKind
	Owner  Owner
	Grant  Grant
	Reason string
}
