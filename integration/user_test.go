package integration_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/history"
)

// user is a program that locks names with one client and records what it sees.
type user struct {
	rec    *history.Recorder
	number int // of the client, within the process
	client *holdfast.Client
	// deadlines are recorded where processes are stopped: the holder is told of
	// a loss only when it goes on. In a bubble they are not: a loss that is told
	// late must show as an overlap.
	deadlines bool
}

// request is one acquire.
type request struct {
	name string
	opts holdfast.AcquireOptions
	try  bool
	// outer is the hold that the request may share.
	outer *grip
}

func (r *request) mode() holdfast.Mode {
	if r.opts.Permits > 0 {
		return holdfast.Permits
	}
	return cmp.Or(r.opts.Mode, holdfast.Exclusive)
}

// how gives the options beside the mode in a few words.
func (r *request) how() string {
	o := &r.opts
	var words []string
	say := func(used bool, format string, args ...any) {
		if used {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(r.try, "try")
	say(o.TTL > 0, "ttl %v", o.TTL)
	say(o.NoRenew, "no renew")
	say(o.MaxHold > 0, "max hold %v", o.MaxHold)
	say(o.MinHold > 0, "min hold %v", o.MinHold)
	say(o.Wait > 0, "wait %v", o.Wait)
	say(o.Tries > 0, "tries %d", o.Tries)
	say(o.Unfair, "unfair")
	say(o.Reentrant, "reentrant")
	say(o.Key != "", "key %s", o.Key)
	if r.outer != nil {
		words = append(words, fmt.Sprintf("inside op %d", r.outer.op))
	}
	return strings.Join(words, ", ")
}

// grip is a lease in a user's hand.
type grip struct {
	user  *user
	lease *holdfast.Lease
	op    uint64
	owner string
	stop  func() bool
	seen  int64 // the deadline that was recorded last
}

func (u *user) acquire(ctx context.Context, r request) (*grip, error) {
	op := u.rec.NextOp()
	u.rec.Add(history.Event{
		Kind: history.Acquire, Client: u.number, Op: op, Name: r.name, Mode: r.mode().String(), N: r.opts.Permits, Limit: r.opts.Limit, How: r.how(),
	})
	acquire := u.client.Acquire
	if r.try {
		acquire = u.client.TryAcquire
	}
	lease, err := acquire(ctx, r.name, &r.opts)
	if err != nil {
		kind := history.Refused
		if errors.Is(err, holdfast.ErrIndeterminate) {
			kind = history.Unknown
		}
		u.rec.Add(history.Event{Kind: kind, Client: u.number, Op: op, Err: err.Error()})
		return nil, err
	}
	return u.grip(lease, op, r.outer), nil
}

// grip records that an acquire returned a lease.
func (u *user) grip(lease *holdfast.Lease, op uint64, outer *grip) *grip {
	g := &grip{user: u, lease: lease, op: op, owner: lease.Owner()}
	e := history.Event{Kind: history.Granted, Client: u.number, Op: op, Token: lease.Token(), Deadline: g.deadline()}
	if outer != nil && outer.owner == g.owner {
		e.Root = outer.op
	}
	g.seen = e.Deadline
	u.rec.Add(e)
	g.stop = context.AfterFunc(lease.Context(), func() {
		e := history.Event{Kind: history.Lost, Client: u.number, Op: op, Err: context.Cause(lease.Context()).Error()}
		e.Deadline = u.over()
		u.rec.Add(e)
	})
	return g
}

// adopt goes on with the hold of another lease, as another process would. Both
// results are nil if that lease had ended.
func (u *user) adopt(ctx context.Context, from *grip, mode holdfast.Mode, o *holdfast.AcquireOptions) (*grip, error) {
	from.user.rec.Add(history.Event{Kind: history.Release, Client: from.user.number, Op: from.op, Deadline: from.deadlineOr()})
	text, err := from.lease.Handle()
	if err != nil {
		return nil, nil //nolint:nilerr // that it ended is no mistake
	}
	op := u.rec.NextOp()
	u.rec.Add(history.Event{
		Kind: history.Acquire, Client: u.number, Op: op, Name: from.lease.Name(), Mode: mode.String(), N: o.Permits, Limit: o.Limit,
		How: fmt.Sprintf("adopt op %d", from.op),
	})
	if from.lease.Context().Value(mayEnd{}) != nil { // a handle carries NoRenew
		ctx = context.WithValue(ctx, mayEnd{}, true)
	}
	lease, err := u.client.Adopt(ctx, text)
	if err != nil {
		u.rec.Add(history.Event{Kind: history.Unknown, Client: u.number, Op: op, Err: err.Error()})
		return nil, err
	}
	return u.grip(lease, op, from), nil
}

// deadline is the lease's on the recorder's clock; 0 if it has none, or is not
// to be recorded.
func (g *grip) deadline() int64 {
	at, ok := g.lease.Deadline()
	if !ok || !g.user.deadlines {
		return 0
	}
	return g.user.rec.Now() + int64(time.Until(at))
}

// over is when a lease ended that is not valid now. A bubble's clock stands
// still while anybody runs, so it was no later than this; elsewhere 0 leaves it
// to the stamp.
func (u *user) over() int64 {
	if u.deadlines {
		return 0
	}
	return u.rec.Now()
}

// look is what a careful holder does before a side effect.
func (g *grip) look() bool {
	d := g.deadline()
	if !g.lease.Valid() {
		return false
	}
	if d > g.seen+int64(10*time.Millisecond) {
		g.seen = d
		g.user.rec.Add(history.Event{Kind: history.Held, Client: g.user.number, Op: g.op, Deadline: d})
	}
	return true
}

// deadlineOr is the deadline that counts at the end of a hold.
func (g *grip) deadlineOr() int64 {
	if g.look() {
		return g.seen
	}
	return g.user.over()
}

func (g *grip) release(ctx context.Context) error {
	g.user.rec.Add(history.Event{Kind: history.Release, Client: g.user.number, Op: g.op, Deadline: g.deadlineOr()})
	g.stop()
	err := g.lease.Release(ctx)
	e := history.Event{Kind: history.Released, Client: g.user.number, Op: g.op, OK: err == nil}
	if err != nil {
		e.Err = err.Error()
	}
	g.user.rec.Add(e)
	return err
}

// closeClient records that the client's leases end now.
func (u *user) closeClient() error {
	u.rec.Add(history.Event{Kind: history.Closing, Client: u.number})
	return u.client.Close()
}
