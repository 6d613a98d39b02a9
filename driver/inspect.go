package driver

import (
	"context"
	"iter"
	"os"
	"time"
)

// Inspector is a store that tells who holds and who waits for a name.
type Inspector interface {
	// Inspect answers with the zero Record's Holders and Waiters if the name is
	// free. It takes nothing and disturbs nobody's attempt. It answers at once;
	// when ctx ends half-way it returns an error, and nothing has changed.
	Inspect(ctx context.Context, n Name) (Record, error)
}

// Lister is a store that can list its names.
type Lister interface {
	// List yields the records of all names under a prefix of the application
	// that are held or waited for, in no particular order, each at most once.
	// A name that is taken and freed while the listing runs may be missing.
	// An error ends the listing, as does ctx. It may take several exchanges.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// Breaker is a store on which a person can revoke a hold.
type Breaker interface {
	// Break marks the exact grant as revoked, which its holder learns at the
	// next renewal or sooner; the name is granted again when the holder
	// releases or the grant ends. With Force it ends the grant at once. It does
	// not wait for the holder. When ctx ends half-way the mark may have been made;
	// the same request again is harmless.
	Break(ctx context.Context, req *BreakRequest) (BreakStatus, error)
}

// Inheritor is a store whose holds live in open file descriptors, which
// another process can share: the name stays taken until all have closed them.
type Inheritor interface {
	// Inherit returns duplicates (close-on-exec) of the descriptors that hold the
	// grant, for the caller to pass on and close; an error if this store holds
	// nothing for the owner. It does not block. A Release frees the name whatever
	// duplicates are open.
	Inherit(owner Owner) ([]*os.File, error)
}

// Record is what the store knows of one name.
type Record struct {
	Name    string
	Mode    Mode
	Limit   int // of a semaphore
	Holders []Holder
	Waiters []Waiter // in order; nil if the store does not tell
}

// Holder is one who holds a name. Times are spans as the store measures them,
// so that no clocks are compared.
type Holder struct {
	Owner   Owner // zero if the record is damaged
	Label   string
	Token   uint64 // store token, 0 if none
	Mode    Mode
	Permits int
	Held    time.Duration // since the grant
	// Left is how long the grant runs yet without a renewal; 0 if it has no
	// end of its own.
	Left   time.Duration
	Broken string // the reason, if the hold was revoked
	// Value is the hold's value and Seq its number, 0 if none was set; see [Valuer].
	Value string
	Seq   uint64
}

// Waiter is one who waits for a name.
type Waiter struct {
	Owner   Owner
	Label   string
	Mode    Mode
	Permits int
	Waited  time.Duration
}

// BreakRequest revokes one grant. Token, or Owner where Token is 0, must be
// the present holder's.
type BreakRequest struct {
	Name   Name
	Token  uint64
	Owner  Owner
	Reason string // with who asked for it
	Force  bool   // end the grant at once: two may then run
}

// BreakStatus is the answer to a break.
type BreakStatus uint8

// The answers to a break.
const (
	Marked   BreakStatus = iota + 1 // the holder will learn it
	Freed                           // forced: the name is free
	NotHeld                         // nobody holds the name
	Mismatch                        // somebody else does; nothing was changed
)
