package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
)

// worker is one goroutine of a random program.
type worker struct {
	*user
	w   *world
	r   *rand.Rand
	key string
}

const permitLimit = 3

func (w *world) newWorker(client, k int) *worker {
	seed := uint64(100*client + k) //nolint:gosec // not negative
	return &worker{user: w.users[client], w: w, r: rand.New(rand.NewPCG(w.seed, 1000+seed)), key: fmt.Sprintf("worker-%d", k)}
}

func (x *worker) upTo(d time.Duration) time.Duration { return time.Duration(x.r.Int64N(int64(d))) }
func (x *worker) oneIn(n int) bool                   { return x.r.IntN(n) == 0 }

func (x *worker) run() {
	for range x.w.rounds {
		pause(nil, x.upTo(x.w.ttl/4))
		req, ctx := x.request()
		if !x.round(ctx, req) {
			return
		}
	}
}

// request draws an acquire. Most of them are alike, so that they meet in one
// line and hand over to each other.
func (x *worker) request() (request, context.Context) {
	ctx := context.Background()
	req := request{name: x.w.names[x.r.IntN(len(x.w.names))], try: x.oneIn(6)}
	o := &req.opts
	if req.name == "permits" {
		o.Permits, o.Limit = 1+x.r.IntN(permitLimit), permitLimit
	} else if x.oneIn(3) {
		o.Mode = holdfast.Shared
	}
	switch x.r.IntN(12) {
	case 0:
		o.NoRenew = true
		ctx = context.WithValue(ctx, mayEnd{}, true)
	case 1:
		o.MaxHold = x.w.ttl + x.upTo(2*x.w.ttl)
		ctx = context.WithValue(ctx, mayEnd{}, true)
	case 2:
		o.MinHold = x.upTo(2 * x.w.ttl)
	case 3:
		o.Unfair = true
	case 4:
		o.Wait = 1 + x.upTo(2*x.w.ttl)
	case 5:
		o.Tries = 1 + x.r.IntN(4)
	case 6:
		o.TTL = holdfast.MinTTL + x.upTo(time.Second)
	case 7:
		if o.Permits == 0 {
			o.Key = x.key
		}
	}
	return req, ctx
}

// round is one acquire and what follows; false if the client was closed.
func (x *worker) round(ctx context.Context, req request) bool {
	limit := patience
	if x.oneIn(4) {
		limit = 1 + x.upTo(2*x.w.ttl)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	g, err := x.acquire(ctx, req)
	x.judge(req, limit, time.Since(start), err)
	if err != nil {
		return !errors.Is(err, holdfast.ErrClosed)
	}
	x.hold(g, req, 2)
	if x.oneIn(10) && req.opts.MaxHold == 0 {
		x.passOn(g, req)
		return true
	}
	x.let(g)
	return true
}

// judge holds a wait to its bounds, and an error to its class.
func (x *worker) judge(req request, limit, took time.Duration, err error) {
	const slack = time.Millisecond
	if took > limit+slack {
		x.w.wrong("law W2: acquire of %q (%s) returned %v after its ctx ended: %v", req.name, req.how(), took-limit, err)
	}
	// A last attempt, and the delivery of what it found, may take a request each.
	if wait := req.opts.Wait; wait > 0 && !req.try && took > wait+2*x.w.ttl/3+slack {
		x.w.wrong("law W1: acquire of %q (%s) took %v: %v", req.name, req.how(), took, err)
	}
	if limit == patience && took >= patience {
		x.w.wrong("starved: acquire of %q (%s) took %v: %v", req.name, req.how(), took, err)
	}
	if x.w.quiet() && took > 0 && errors.Is(err, holdfast.ErrTimeout) && !errors.Is(err, holdfast.ErrHeld) {
		x.w.wrong("law E1: acquire of %q (%s) does not say what it waited for: %v", req.name, req.how(), err)
	}
	if err == nil || isAny(err, holdfast.ErrHeld, holdfast.ErrTimeout, holdfast.ErrUnavailable, holdfast.ErrIndeterminate, holdfast.ErrClosed) {
		return
	}
	x.w.wrong("unexpected: acquire of %q (%s): %v", req.name, req.how(), err)
}

// hold is what a worker does with a lease in its hand.
func (x *worker) hold(g *grip, req request, depth int) {
	for range x.r.IntN(4) {
		pause(g.lease.Context().Done(), x.upTo(x.w.pace))
		short, cancel := context.WithTimeout(context.Background(), x.w.ttl)
		switch x.r.IntN(8) {
		case 0:
			_ = g.lease.Check(short)
		case 1:
			_ = g.lease.Renew(short, holdfast.MinTTL+x.upTo(2*x.w.ttl))
		case 2:
			if req.opts.Permits == 0 && depth > 0 {
				x.again(g, req, depth)
			}
		}
		cancel()
		if !g.look() {
			return
		}
	}
}

// again enters a second time, and may leave after the first did.
func (x *worker) again(outer *grip, req request, depth int) {
	inner := request{name: req.name, outer: outer}
	ctx := outer.lease.Context()
	if req.opts.Key != "" && x.oneIn(2) {
		inner.opts.Key = req.opts.Key
		ctx = context.WithoutCancel(ctx)
	}
	inner.opts.Reentrant = true
	inner.opts.Mode = req.opts.Mode
	if req.opts.Mode == 0 && x.oneIn(3) {
		inner.opts.Mode = holdfast.Shared
	}
	ctx, cancel := context.WithTimeout(ctx, x.w.ttl)
	defer cancel()
	g, err := x.acquire(ctx, inner)
	if err != nil { // the outer one was lost, or the store did not answer
		if x.w.quiet() && outer.lease.Valid() && !errors.Is(err, holdfast.ErrConflict) {
			x.w.wrong("law G5: acquire of %q (%s) failed: %v", inner.name, inner.how(), err)
		}
		return
	}
	if x.oneIn(2) {
		x.let(outer)
	}
	x.hold(g, inner, depth-1)
	x.let(g)
}

// passOn hands the hold to another client, as a handle.
func (x *worker) passOn(g *grip, req request) {
	to := x.w.users[x.r.IntN(len(x.w.users))]
	ctx, cancel := context.WithTimeout(context.Background(), x.w.ttl)
	defer cancel()
	heir, err := to.adopt(ctx, g, req.mode(), &req.opts)
	if heir == nil {
		if err != nil && !isAny(err, holdfast.ErrLost, holdfast.ErrUnavailable, holdfast.ErrIndeterminate, holdfast.ErrClosed, context.DeadlineExceeded) {
			x.w.wrong("unexpected: adopt: %v", err)
		}
		x.let(g) // changes nothing
		return
	}
	x.hold(heir, req, 0)
	x.let(heir)
}

// let releases, as calmly or hastily as programs do.
func (x *worker) let(g *grip) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if x.oneIn(4) {
		cancel() // must not matter
	}
	start := time.Now()
	err := g.release(ctx)
	if took := time.Since(start); took > 5*time.Second+time.Millisecond {
		x.w.wrong("law G6: release took %v: %v", took, err)
	}
	if x.oneIn(4) {
		if again := g.lease.Release(ctx); !errors.Is(again, err) {
			x.w.wrong("law G6: a second release says %v, the first %v", again, err)
		}
	}
	if g.lease.Valid() {
		x.w.wrong("law G6: valid after its release")
	}
}
