package driver

import (
	"context"
	"time"
)

// Class is how strong exclusion and tokens are. A larger class gives more.
type Class uint8

// The guarantee classes.
const (
	ClassNone Class = iota // fail-open: nothing is promised
	ClassD                 // best effort: a documented fault may let two in
	ClassC                 // one server, lease: holds while its clock is not stepped and its data lives
	ClassB                 // one server, session-bound: holds while the server and the session live
	ClassA                 // consensus: holds while a majority lives
)

var classNames = [...]string{"none", "D", "C", "B", "A"}

// String gives the class's letter, or "none".
func (c Class) String() string { return name(classNames[:], int(c)) }

// MarshalText gives what String does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Bound is what a grant lives by.
type Bound uint8

// What a grant lives by.
const (
	ByLease      Bound = iota + 1 // its window, renewed
	ByConnection                  // a session, connection or process; it ends with it
)

// WaitBy is how waiting is done on a store.
type WaitBy uint8

// The ways to wait.
const (
	ByPolling WaitBy = iota // attempts with jittered pauses
	ByPlaces                // places in the store's queue: a Queuer
	ByParking               // calls that the store parks: a Blocker
)

// Abilities are what a store can do beyond an exclusive lock with attempt,
// renewal and release. The table of stores and abilities in package
// drivertest promises them; the conformance suite proves each, and that what
// is missing is refused.
type Abilities struct {
	Fair, Fencing, Shared, Permits, Handles bool
	// Break, List, Inspect and Value need their interfaces as well. Those who have
	// the interface may still lack the ability, like a composite of lesser stores.
	Break, List, Inspect, Value bool
}

// Properties are a store's promises.
type Properties struct {
	// Store is the short name used in errors, metrics and docs, e.g. "redis".
	Store string
	Class Class
	Bound Bound
	Wait  WaitBy
	Abilities
	// MinTTL and MaxTTL bound the TTL, within holdfast's own bounds; 0 means
	// those. Granularity is what a TTL is rounded up to.
	MinTTL, MaxTTL, Granularity time.Duration
	// Local stores are reached without a network: calls are answered at once
	// and never ambiguous, so requests need no timeout of their own.
	Local bool
	// OneHost stores exclude only the processes of one machine.
	OneHost bool
	Names   Names
	// FinalTokens: Grant.Token is the whole fencing token, below 2^63, with the
	// local sequence of the process that handed it over. Package holdfast adds
	// nothing to it and hands nothing over itself; readers that it lets in
	// together have one token.
	FinalTokens bool
	// Settle is how long a request may still reach the store after it was given
	// up; an attempt of unknown outcome is abandoned again and again for so long.
	// 0: its TTL.
	Settle time.Duration
	// Warnings name unsafe settings that were found, in plain words.
	Warnings []string
}

// Names are a store's limits on keys. Package holdfast encodes every name into
// them, one to one and safe for stores that fold case.
type Names struct {
	// MaxBytes is the longest key, at least 80; longer ones are hashed.
	MaxBytes int
	// Portable restricts keys to the characters a-z, 0-9 and "._-%+~"; without
	// it a key may hold any UTF-8.
	Portable bool
}

// Looker is a store that can look again for what has become unsafe while it is
// open, such as a server's clock that was set.
type Looker interface {
	Store

	// LookAgain asks the servers, so that [Properties.Warnings] has what is new. It
	// changes nothing else. When ctx ends half-way it returns an error.
	LookAgain(ctx context.Context) error
}
