package driver

import "context"

// MaxValue is the most bytes of a value. It is UTF-8 without control characters.
const MaxValue = 1024

// Valuer is a store that keeps a value with an exclusive grant, which
// everybody can read: what a leader says of itself. A grant begins without a value;
// the value is kept over renewals, ends with the grant, and leaves nothing behind.
type Valuer interface {
	Store

	// SetValue makes req.Value the value of the exact grant, by owner and token,
	// unless the value there has the same Seq or a larger one: so a late or
	// repeated request changes nothing. It answers whether the grant is the
	// owner's, also if nothing had to be changed, and also of one that was revoked
	// (see [Breaker]). It extends nothing. From then on the record has the token
	// too, if it had none yet. It answers at once; when ctx ends half-way the value
	// may have been set, or be yet; what is said next has a larger Seq.
	SetValue(ctx context.Context, req *ValueRequest) (held bool, err error)

	// Leader tells who holds the name exclusive, with his value and its Seq, and
	// with Left if the grant ends by itself; Held may be left out. It is nil if
	// nobody does, or others than one exclusive holder do. The answer was true at
	// some moment of the call; a store with replicas makes sure of that. It is
	// cheap whoever waits for the name, takes nothing and disturbs nobody; when
	// ctx ends half-way it returns an error.
	Leader(ctx context.Context, n Name) (*Holder, error)
}

// Watcher is a [Valuer] that tells of changes by itself. Others are asked from
// time to time.
type Watcher interface {
	Valuer

	// Watch calls changed as soon as it will see every later change of who holds
	// the name exclusive and of his value and label, and again after each; several
	// may be told as one, and one may be told that was none. That a grant ran out need not be told where
	// Leader gave its Left. It blocks until ctx ends or changes may have been
	// missed (a connection made anew, a compaction), when it returns an error, and
	// package holdfast asks and watches again. changed does not block, and is not
	// called after the return. Many watches of one client, also of one name, share
	// what they cost the store.
	Watch(ctx context.Context, n Name, changed func()) error
}

// ValueRequest sets the value of one grant.
type ValueRequest struct {
	Ref
	// Seq counts the values of a grant, from 1.
	Seq   uint64
	Value string
}
