// Package driver is the contract between Holdfast and a lock store.
//
// Users meet only its modes, classes and [Properties]; they hold a
// holdfast.Client. Those who teach Holdfast
// a new store implement [Store], and the optional interfaces for what the
// store can do beyond it: [Queuer] or [Blocker] for waiting, [Signaler],
// [Batcher], [Mixer], [Sharder], [Lister], [Inspector], [Breaker], [Valuer], [Watcher], [Looker],
// [Inheritor].
//
// # Who promises what
//
// Package holdfast does everything clever once, for all stores: local queues
// and hand-over, waiting and jitter, renewal, deadlines and loss, reentrancy,
// retries, compensation of attempts whose reply was lost, names, validation,
// hooks. It calls a driver only with valid requests and never after Close. It
// never has two requests of one [Owner] under way, except that a Release may
// come while an Acquire, Block, Renew or Beat of it is late, that
// heartbeats may overlap, and that a SetValue may come beside a Renew.
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
	// smaller ones. When ctx ends, what was not answered yet carries an error. A store
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

	// Properties are the store's promises, constant for its life, but that Warnings
	// may grow. It does not block.
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

// Mixer is a Batcher whose exchanges carry attempts and releases together, and for
// which one large batch costs so much less than two small ones that a second is not
// begun while one is away, unless that takes long.
type Mixer interface {
	Batcher
	// Mix makes attempts and releases, of different names all and no more than
	// MaxBatch together, as AcquireMany and ReleaseMany do.
	Mix(ctx context.Context, acquires []*AcquireRequest, releases []*ReleaseRequest) ([]AcquireAnswer, []ReleaseAnswer)
}

// Sharder is a store on several nodes, or of grants that have a connection
// each. Requests of different shards never travel in one call of Renew, Beat,
// AcquireMany, ReleaseMany or Mix, and do not wait for each other. For an acquire,
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
