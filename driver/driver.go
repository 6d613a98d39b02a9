// Package driver is the contract between Holdfast and a lock store.
//
// Users meet only its modes, classes and [Properties]; they hold a
// holdfast.Client. Those who teach Holdfast
// a new store implement [Store], and the optional interfaces for what the
// store can do beyond it: [Queuer] or [Blocker] for waiting, [Signaler],
// [Batcher], [Sharder], [Lister], [Inspector], [Breaker], [Inheritor].
//
// # Who promises what
//
// Package holdfast does everything clever once, for all stores: local queues
// and hand-over, waiting and jitter, renewal, deadlines and loss, reentrancy,
// retries, compensation of attempts whose reply was lost, names, validation,
// hooks. It calls a driver only with valid requests and never after Close. It
// never has two requests of one [Owner] under way, except that a Release may
// come while an Acquire, Block, Renew or Beat of it is late, and that
// heartbeats may overlap.
//
// A driver translates. It never sleeps, never logs, never panics, starts no
// retry of its own but for what the store certainly refused, and compares no
// clock of another machine with its own. What ends a lease is the store's
// clock; what ends the holder's trust is [Now], read before a request is sent.
//
// Grants that live by a session of the client are kept by the driver: on a
// goroutine of its own it keeps the session alive while it has holds, places or
// parked calls in it, and tells the end of the session with a [LostSignal] for
// each hold and a [MissedSignal]. A lease, or a lock's own connection, is kept
// by Renew.
//
// All methods may be called from many goroutines at once. Requests are not
// kept after the call returns. A driver may not change a request.
package driver

import (
	"context"
	"errors"
	"time"
)

// Store is one client of one lock store.
type Store interface {
	// Acquire makes one attempt for req.Owner and answers at once; it never
	// waits for another holder. If the name cannot be granted and req.Queue is
	// set, a [Queuer] takes a place for the owner and answers Waiting; every
	// other answer leaves nothing behind in the store.
	//
	// A repeated request of the same owner changes nothing and answers as the
	// first did. An owner that was abandoned (see [Store.Release]) is answered
	// Gone and gets neither grant nor place.
	//
	// When ctx ends half-way the call returns promptly with an error that
	// [Store.Classify] calls Indeterminate, or Unavailable if the request
	// surely was not applied; package holdfast then abandons the owner.
	Acquire(ctx context.Context, req *AcquireRequest) (AcquireResult, error)

	// Renew extends grants, each to at least TTL from the moment the store
	// handles it. It compares owner and token, never shortens, never revives a
	// grant that has lapsed or was released, and changes nothing for one that
	// is not this owner's. The answers are in the order of the requests and as
	// many. One slow grant may delay the others of the call, so package
	// holdfast never mixes shards (see [Sharder]) and re-sends late batches in
	// halves. When ctx ends, what was not answered yet carries an error. A store
	// whose grants live by a session may answer from what it knows of the
	// session, if nothing but its end or a signal can end the grant.
	Renew(ctx context.Context, reqs []RenewRequest) []RenewResult

	// Release ends the exact grant or place of the owner. A repeated or late
	// call changes nothing and answers false, or as the first did; a driver whose
	// client may have repeated the request by itself answers Indeterminate
	// instead of a false that may be wrong. It never waits for a holder.
	// When ctx ends half-way the grant may or may not have ended; package
	// holdfast calls again with the same request.
	Release(ctx context.Context, req *ReleaseRequest) (released bool, err error)

	// Classify tells what an error that this store returned means. Unknown
	// errors are Indeterminate, never Unavailable. It does not block.
	Classify(err error) Kind

	// Properties are the store's promises, constant for its life.
	Properties() Properties

	// Close ends the store's goroutines and frees what the driver made; a
	// client that the user passed in stays open. It is the last call, it
	// returns within a few seconds, and it releases nothing by itself: a session
	// without a hold or place is closed, one that has some is left to run out.
	Close() error
}

// Queuer is a store that keeps places for waiters, in order of arrival. Grants
// of places arrive as signals, so a Queuer is a [Signaler] too.
type Queuer interface {
	Store
	Signaler

	// Beat tells the store that places live, and learns what became of them,
	// in the order of the requests. The same step moves the queue on past a
	// holder, claim or place that has lapsed. It answers at once. Beats cost
	// one exchange per shard however many places travel in it. A store that sets
	// Grant.Sent may answer from what it knows; one that leaves it zero asks.
	Beat(ctx context.Context, places []Ref) []BeatResult
}

// Blocker is a store in which the wait itself is an operation: the kernel or
// the server parks the caller and grants in its own order.
type Blocker interface {
	Store

	// Block is an Acquire that waits until it is granted or ctx ends. When ctx
	// ends it returns promptly, with an Indeterminate error unless the wait is
	// surely over and nothing was granted; package holdfast then abandons the
	// owner, and that Release ends the parked call and a grant that came late.
	// Package holdfast calls it at most once at a time per name. Grant.Sent must
	// be set if the wait may outlast the grant's window. [ErrNoRoom] says that no
	// more calls can be parked; package holdfast then polls with Acquire.
	Block(ctx context.Context, req *AcquireRequest) (Grant, error)
}

// ErrNoRoom refuses one more parked call; see [Blocker].
var ErrNoRoom error = &Failure{Unavailable, errors.New("no room for another parked call")}

// Signaler is a store that speaks up by itself.
type Signaler interface {
	// Listen sets where signals go. It is called once, before any other method
	// but Properties. deliver does not block and may be called from any
	// goroutine of the driver, never from inside a method of the store.
	Listen(deliver func(Signal))
}

// Batcher is a store that can carry many requests in one exchange. A batch
// never holds two requests of one name, nor of two shards. The answers are in
// order and as many, each with its own error; each is what Acquire or Release
// would have answered. When ctx ends half-way, those not answered yet carry an
// error as there.
type Batcher interface {
	AcquireMany(ctx context.Context, reqs []*AcquireRequest) []AcquireAnswer
	ReleaseMany(ctx context.Context, reqs []*ReleaseRequest) []ReleaseAnswer
	// MaxBatch is the largest number of requests in one call, of Renew and
	// Beat too.
	MaxBatch() int
}

// Sharder is a store on several nodes, or of grants that have a connection
// each. Requests of different shards never travel in one call of Renew, Beat,
// AcquireMany or ReleaseMany, and do not wait for each other. For an acquire,
// Token is 0. The answer may change over time and does not block.
type Sharder interface {
	Shard(r Ref) int
}

// Detacher is a store whose grants share a session that one can be taken out
// of, so that a handle of it can leave the process.
type Detacher interface {
	// Detach makes the exact grant live by itself for r.TTL from now, whatever
	// becomes of the session. It answers as Renew does, and at once; when ctx
	// ends half-way the grant may have been detached.
	Detach(ctx context.Context, r RenewRequest) RenewResult
}

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
