package drivertest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// mutant is a store with one fault, such as real ones have had.
type mutant struct {
	name, fault string
	breakIt     func(*broken)
}

var mutants = slices.Concat(ownerMutants, tokenMutants, timeMutants, queueMutants, adminMutants, valueMutants)

var ownerMutants = []mutant{
	{"no owner compare", "renewal and release go to whoever holds the name", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			r.Ref = b.present(r.Ref)
			return b.one(ctx, r)
		}
		releaseByName(b)
	}},
	{"release by name", "release frees the name, whoever holds it", releaseByName},
	{"owner is the client", "a client's second owner is let in beside its first", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			hs := b.look(r.Name).Holders
			if len(hs) > 0 && hs[0].Owner != r.Owner && hs[0].Mode == driver.Exclusive && r.Mode == driver.Exclusive && b.sent(hs[0].Owner) {
				return b.conjure(r), nil
			}
			return b.full.Acquire(ctx, r)
		}
	}},
	{"reader beside writer", "a reader is let in while a writer holds", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			hs := b.look(r.Name).Holders
			if r.Mode == driver.Shared && len(hs) > 0 && hs[0].Mode == driver.Exclusive {
				return b.conjure(r), nil
			}
			return b.full.Acquire(ctx, r)
		}
	}},
	{"repetition refused", "a repeated attempt of an owner is answered Held", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			held := len(b.look(r.Name).Holders) > 0 && b.look(r.Name).Holders[0].Owner == r.Owner
			if held || b.waits(driver.Ref{Name: r.Name, Owner: r.Owner}) {
				return driver.AcquireResult{Status: driver.Held}, nil
			}
			return b.full.Acquire(ctx, r)
		}
	}},
	{"late grant accepted", "an attempt that arrives after its abandon is granted", func(b *broken) {
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			r.Abandon = false
			return b.full.Release(ctx, r)
		}
	}},
	{"grant bound to its client", "only the client that acquired can renew", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			if !b.sent(r.Owner) {
				return driver.RenewResult{Status: driver.Lost}
			}
			return b.one(ctx, r)
		}
	}},
	{"permit leak", "of several permits one is not given back", func(b *broken) {
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			waited := b.waits(r.Ref)
			ok, err := b.full.Release(ctx, r)
			if req := b.request(r.Owner); ok && !waited && req != nil && req.N > 1 {
				leak := &driver.AcquireRequest{Name: r.Name, Owner: driver.Owner{0: 1, 1: r.Owner[0], 2: r.Owner[1]}, Mode: driver.Permits, N: 1, Limit: req.Limit, TTL: 24 * time.Hour, Unfair: true}
				_, _ = b.full.Acquire(ctx, leak)
			}
			return ok, err
		}
	}},
	{"one permit too many", "a semaphore that is full grants one more", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := b.full.Acquire(ctx, r)
			if res.Status != driver.Held || r.Mode != driver.Permits {
				return res, err
			}
			if _, more := b.w.over.LoadOrStore(r.Name.Key, true); more {
				return res, nil
			}
			return b.conjure(r), nil
		}
	}},
	{"abandoned grant stays", "abandoning an owner that was granted ends nothing", func(b *broken) {
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			if hs := b.look(r.Name).Holders; r.Abandon && len(hs) > 0 && hs[0].Owner == r.Owner {
				return true, nil
			}
			return b.full.Release(ctx, r)
		}
	}},
	{"token demanded", "a release without a token is refused", func(b *broken) {
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			if r.Token == 0 && !r.Abandon {
				return false, nil
			}
			return b.full.Release(ctx, r)
		}
	}},
	{"batch releases one", "of a batch of releases only the first is done", func(b *broken) {
		b.releases = func(reqs []*driver.ReleaseRequest) int { return min(1, len(reqs)) }
	}},
	{"one kind ignored", "a semaphore is granted under the name of something else", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := b.full.Acquire(ctx, r)
			if driver.KindOf(err) == driver.Conflict {
				return b.conjure(r), nil
			}
			return res, err
		}
	}},
	{"case folded", "names that differ in case are one", func(b *broken) {
		b.name = func(n driver.Name) driver.Name { n.Key = strings.ToLower(n.Key); return n }
	}},
	{"names cut", "only the first hundred bytes of a key count", func(b *broken) {
		b.name = func(n driver.Name) driver.Name { n.Key = n.Key[:min(100, len(n.Key))]; return n }
	}},
	{"close releases", "closing the store frees what it holds", func(b *broken) {
		b.close = func() {
			b.w.mu.Lock()
			owners := slices.Clone(b.w.order)
			b.w.mu.Unlock()
			for _, o := range owners {
				if b.sent(o) {
					_, _ = b.full.Release(context.Background(), &driver.ReleaseRequest{Ref: driver.Ref{Name: b.request(o).Name, Owner: o}})
				}
			}
		}
	}},
}

func releaseByName(b *broken) {
	b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
		if !b.waits(r.Ref) {
			r.Ref = b.present(r.Ref)
		}
		return b.full.Release(ctx, r)
	}
}

// sent tells whether an owner's request came from this client.
func (b *broken) sent(o driver.Owner) bool {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return b.w.by[o] == b
}

var tokenMutants = []mutant{
	{"token per process", "each client counts its own tokens", func(b *broken) {
		var count uint64
		remint(b, func(driver.Owner) uint64 { count++; return count })
	}},
	{"token reset on delete", "tokens begin again when the record of a free name is gone", func(b *broken) {
		remint(b, func(o driver.Owner) uint64 {
			var last uint64
			for _, h := range b.look(b.w.asked[o].Name).Holders {
				if h.Owner != o {
					last = max(last, b.w.tokens[h.Owner][0])
				}
			}
			return last + 1
		})
	}},
}

// remint gives grants tokens of the mutant's own.
func remint(b *broken, mint func(driver.Owner) uint64) {
	b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
		res, err := b.full.Acquire(ctx, r)
		if res.Status == driver.Granted {
			b.retoken(r.Owner, &res.Grant, func() uint64 { return mint(r.Owner) })
		}
		return res, err
	}
	b.beat = func(ctx context.Context, r driver.Ref) driver.BeatResult {
		res := b.full.Beat(ctx, []driver.Ref{r})[0]
		if res.Status == driver.Granted {
			b.retoken(r.Owner, &res.Grant, func() uint64 { return mint(r.Owner) })
		}
		return res
	}
	b.signal = func(s driver.Signal) []driver.Signal {
		if s.Kind == driver.GrantSignal {
			b.retoken(s.Owner, &s.Grant, func() uint64 { return mint(s.Owner) })
		}
		return []driver.Signal{s}
	}
}

var timeMutants = []mutant{
	{"deadline from the reply", "the grant's moment is taken after the answer", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := b.full.Acquire(ctx, r)
			if res.Status == driver.Granted {
				time.Sleep(200 * time.Millisecond) //nolint:forbidigo // on a bubble's clock
				res.Grant.Sent = driver.Now()
			}
			return res, err
		}
	}},
	{"blind extend", "a grant that has lapsed is renewed while the name is free", func(b *broken) {
		revive(b, func(ended bool) bool { return !ended })
	}},
	{"renew after release", "a grant that was released is renewed while the name is free", func(b *broken) {
		revive(b, func(ended bool) bool { return ended })
	}},
	{"shortening renew", "a renewal with a shorter TTL cuts the grant", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			res := b.one(ctx, r)
			if res.Status == driver.Renewed && r.TTL > 0 && res.Window > r.TTL {
				time.AfterFunc(r.TTL, func() { _, _ = b.full.Release(context.WithoutCancel(ctx), &driver.ReleaseRequest{Ref: r.Ref}) })
				res.Window = r.TTL
			}
			return res
		}
	}},
	{"adding renew", "a renewal adds its TTL to what is left", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			for _, h := range b.look(r.Name).Holders {
				if h.Owner == r.Owner && r.TTL > 0 {
					r.TTL += h.Left
				}
			}
			return b.one(ctx, r)
		}
	}},
	{"empty renew", "a renewal is answered and extends nothing", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			ttl := r.TTL
			r.TTL = 0
			res := b.one(ctx, r)
			res.Window = max(res.Window, ttl)
			return res
		}
	}},
	{"asking extends", "a renewal that only asks extends", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			if req := b.request(r.Owner); r.TTL == 0 && req != nil {
				r.TTL = req.TTL
			}
			return b.one(ctx, r)
		}
	}},
	{"all lost for one", "if one grant of a renewal is lost, all are called lost", func(b *broken) {
		b.renewals = func(res []driver.RenewResult) {
			if slices.ContainsFunc(res, func(r driver.RenewResult) bool { return r.Status == driver.Lost }) {
				for i := range res {
					res[i] = driver.RenewResult{Status: driver.Lost}
				}
			}
		}
	}},
	{"early end", "the store keeps a grant for three quarters of its window", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			ttl := r.TTL
			r.TTL = r.TTL * 3 / 4
			res, err := b.full.Acquire(ctx, r)
			res.Grant.Window = ttl
			return res, err
		}
	}},
	{"coarse window", "TTLs are cut to tenths of a second", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			r.TTL = r.TTL.Truncate(100 * time.Millisecond)
			return b.full.Acquire(ctx, r)
		}
	}},
	{"keep ignored", "a release that should keep the name frees it", func(b *broken) {
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			r.Keep = 0
			return b.full.Release(ctx, r)
		}
	}},
	{"claim window ignored", "a hand-over's signal says the TTL, while the store keeps the claim window", func(b *broken) {
		b.signal = func(s driver.Signal) []driver.Signal {
			if req := b.request(s.Owner); req != nil && s.Kind == driver.GrantSignal {
				s.Grant.Window = req.TTL
			}
			return []driver.Signal{s}
		}
	}},
}

// revive renews lost grants by taking the name for them again.
func revive(b *broken, which func(ended bool) bool) {
	b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
		res := b.one(ctx, r)
		req := b.request(r.Owner)
		b.w.mu.Lock()
		ended := b.w.ended[r.Owner]
		b.w.mu.Unlock()
		if res.Status != driver.Lost || req == nil || r.TTL == 0 || !which(ended) {
			return res
		}
		again := *req
		again.TTL, again.Queue = r.TTL, false
		got, err := b.full.Acquire(ctx, &again)
		if err != nil || got.Status != driver.Granted {
			return res
		}
		b.w.mu.Lock()
		b.w.tokens[r.Owner] = [2]uint64{r.Token, got.Grant.Token}
		b.w.mu.Unlock()
		return driver.RenewResult{Status: driver.Renewed, Window: r.TTL}
	}
}

var queueMutants = []mutant{
	{"ghost waiter", "a place that is abandoned stays", func(b *broken) {
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			if b.waits(r.Ref) {
				return true, nil
			}
			return b.full.Release(ctx, r)
		}
	}},
	{"try takes a place", "a refused attempt stays in the queue", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			asked := r.Queue
			r.Queue = true
			r.Claim = max(r.Claim, 100*time.Millisecond)
			res, err := b.full.Acquire(ctx, r)
			if res.Status == driver.Waiting && !asked {
				res.Status = driver.Held
			}
			return res, err
		}
	}},
	{"missed wake-up", "no signal, and no beat, tells of a grant", func(b *broken) {
		b.signal = func(driver.Signal) []driver.Signal { return nil }
		b.beat = func(ctx context.Context, r driver.Ref) driver.BeatResult {
			res := b.full.Beat(ctx, []driver.Ref{r})[0]
			if res.Status == driver.Granted {
				res = driver.BeatResult{Status: driver.Waiting}
			}
			return res
		}
	}},
	{"silent hand-over", "no signal tells of a grant; beats do", func(b *broken) {
		b.signal = func(driver.Signal) []driver.Signal { return nil }
	}},
	{"told twice", "each signal comes twice", func(b *broken) {
		b.signal = func(s driver.Signal) []driver.Signal { return []driver.Signal{s, s} }
	}},
	{"wrong addressee", "a signal for an old place is taken for the client's newest of the name", func(b *broken) {
		b.signal = func(s driver.Signal) []driver.Signal {
			b.w.mu.Lock()
			defer b.w.mu.Unlock()
			req := b.w.asked[s.Owner]
			for _, o := range b.w.order {
				if other := b.w.asked[o]; other.Name.Key == req.Name.Key && b.w.by[o] == b && other.Queue {
					s.Owner = o
				}
			}
			return []driver.Signal{s}
		}
	}},
	{"no moving on", "a beat does not move the queue on past the dead", func(b *broken) {
		var told sync.Map
		b.signal = func(s driver.Signal) []driver.Signal {
			told.Store(s.Owner, true)
			return []driver.Signal{s}
		}
		b.beat = func(ctx context.Context, r driver.Ref) driver.BeatResult {
			if _, ok := told.Load(r.Owner); !ok {
				return driver.BeatResult{Status: driver.Waiting}
			}
			return b.full.Beat(ctx, []driver.Ref{r})[0]
		}
	}},
	{"immortal places", "places live although nothing is heard of them", func(b *broken) {
		b.beat = func(ctx context.Context, r driver.Ref) driver.BeatResult {
			for _, w := range b.look(r.Name).Waiters {
				b.full.Beat(ctx, []driver.Ref{{Name: r.Name, Owner: w.Owner}})
			}
			return b.full.Beat(ctx, []driver.Ref{r})[0]
		}
	}},
	{"barging", "attempts without a place overtake those who wait", func(b *broken) {
		overtakes(b, func(r *driver.AcquireRequest) bool { return !r.Queue })
	}},
	{"reader past writer", "new readers are let in while a writer waits", func(b *broken) {
		overtakes(b, func(r *driver.AcquireRequest) bool { return r.Mode == driver.Shared })
	}},
	{"permits out of order", "a request for one permit overtakes those for more", func(b *broken) {
		overtakes(b, func(r *driver.AcquireRequest) bool { return r.N == 1 })
	}},
	{"refusal untrue", "an attempt with an ended context is granted, and the answer is that nothing was done", func(b *broken) {
		b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := b.full.Acquire(context.WithoutCancel(ctx), r)
			if ctx.Err() != nil {
				return driver.AcquireResult{}, ctx.Err()
			}
			return res, err
		}
	}},
	{"batch is one", "if one attempt of a batch is refused, all are called refused", func(b *broken) {
		b.batch = func(answers []driver.AcquireAnswer) {
			if slices.ContainsFunc(answers, func(a driver.AcquireAnswer) bool { return a.Status == driver.Held }) {
				for i := range answers {
					answers[i] = driver.AcquireAnswer{AcquireResult: driver.AcquireResult{Status: driver.Held}}
				}
			}
		}
	}},
}

func overtakes(b *broken, which func(*driver.AcquireRequest) bool) {
	b.acquire = func(ctx context.Context, r *driver.AcquireRequest) (driver.AcquireResult, error) {
		r.Unfair = r.Unfair || which(r)
		return b.full.Acquire(ctx, r)
	}
}

var adminMutants = []mutant{
	{"break grants at once", "a break frees the name before the holder has answered", func(b *broken) {
		b.breaks = func(ctx context.Context, r *driver.BreakRequest) (driver.BreakStatus, error) {
			forced := r.Force
			r.Force = true
			status, err := b.full.Break(ctx, r)
			if status == driver.Freed && !forced {
				status = driver.Marked
			}
			return status, err
		}
	}},
	{"break of anybody", "a break does not compare token and owner", func(b *broken) {
		b.breaks = func(ctx context.Context, r *driver.BreakRequest) (driver.BreakStatus, error) {
			ref := b.present(driver.Ref{Name: r.Name, Owner: r.Owner})
			r.Owner, r.Token = ref.Owner, 0
			return b.full.Break(ctx, r)
		}
	}},
	{"break untold", "the holder of a broken grant goes on renewing", func(b *broken) {
		b.signal = func(s driver.Signal) []driver.Signal {
			if s.Kind == driver.BrokenSignal {
				return nil
			}
			return []driver.Signal{s}
		}
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			res := b.one(ctx, r)
			if res.Status == driver.Broken {
				res = driver.RenewResult{Status: driver.Renewed, Window: r.TTL}
			}
			return res
		}
	}},
	{"errors are outages", "every error is called unavailable", func(b *broken) {
		b.classify = func(err error) driver.Kind {
			if f := new(driver.Failure); errors.As(err, &f) {
				return f.Kind
			}
			return driver.Unavailable
		}
	}},
	{"waiters reversed", "waiters are told in the wrong order", func(b *broken) {
		b.inspect = func(r driver.Record) driver.Record { slices.Reverse(r.Waiters); return r }
	}},
	{"list of keys", "listing gives keys for names", func(b *broken) {
		b.list = func(r driver.Record) driver.Record { r.Name = strings.ToUpper(r.Name); return r }
	}},
}
