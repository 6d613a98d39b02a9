package drivertest

import (
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var tokenCases = []Case{
	{
		ID: "G3.1", Rule: "Tokens grow from grant to grant of different clients, are positive and below 2^55.",
		Needs: NeedFencing, Quick: true, Func: tokensGrow,
		Kills: []string{"token per process", "token reset on delete"},
	},
	{
		ID: "G3.2", Rule: "The grant after one that lapsed has the larger token.",
		Needs: NeedFencing | NeedLease, Func: tokensOverExpiry,
		Kills: []string{"token per process", "token reset on delete", "try takes a place"},
	},
	{
		ID: "G3.3", Rule: "Tokens grow over abandoned grants and refused attempts.",
		Needs: NeedFencing, Func: tokensOverAbandon,
		Kills: []string{"abandoned grant stays", "token per process", "token reset on delete", "try takes a place"},
	},
	{
		ID: "G3.4", Rule: "Tokens grow over a forced break.",
		Needs: NeedFencing | NeedBreak, Func: tokensOverBreak,
		Kills: []string{"token per process", "token reset on delete"},
	},
	{
		ID: "G3.5", Rule: "A name that nobody used for so long that its record is gone goes on with larger tokens, for a new client too.",
		Needs: NeedFencing, Func: tokensOverIdle,
		Kills: []string{"token per process", "token reset on delete"},
	},
	{
		ID: "G3.6", Rule: "A grant by hand-over has a larger token than the one before, and a smaller one than the one after.",
		Needs: NeedFencing | NeedQueue, Func: tokensOverHandOver,
		Kills: []string{"owner is the client", "token per process", "token reset on delete", "missed wake-up", "silent hand-over"},
	},
	{
		ID: "G3.7", Rule: "Each reader and each holder of permits has a larger token than those who came before.",
		Needs: NeedFencing, Func: tokensOfMany,
		Kills: []string{"token per process", "token reset on delete"},
	},
	{
		ID: "G3.8", Rule: "In the order in which they were inside, waiters of several clients have growing tokens, hand-over within a client included.",
		Needs: NeedFencing, Func: tokensOfCrowd,
		Kills: []string{"token per process", "token reset on delete"},
	},
	{
		ID: "G3.9", Rule: "Tokens grow over a restart of the store.",
		Needs: NeedFencing | NeedRestart, Func: tokensOverRestart,
	},
}

// rising asserts that the tokens of one name's grants grow.
type rising struct {
	t    *T
	last uint64
}

func (r *rising) next(token uint64) {
	if token <= r.last || token >= 1<<55 {
		r.t.Errorf("token %d after %d", token, r.last)
	}
	r.last = max(r.last, token)
}

func tokensGrow(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	for range 10 {
		for _, p := range []*peer{a, b, b} {
			h := p.granted(n)
			seen.next(h.Token)
			p.frees(h)
		}
	}
}

func tokensOverExpiry(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	seen.next(a.granted(n, lasting(t.TTL())).Token)
	seen.next(b.obtains(n, lasting(t.TTL())).Token)
	h := a.obtains(n)
	seen.next(h.Token)
	a.frees(h)
}

func tokensOverAbandon(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	for range 5 {
		h := a.granted(n)
		seen.next(h.Token)
		b.refused(n, "beside the holder")
		a.abandoned(h.Ref)
		h = b.granted(n)
		seen.next(h.Token)
		b.frees(h)
	}
}

func tokensOverBreak(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	h := a.granted(n)
	seen.next(h.Token)
	b.breaks(&driver.BreakRequest{Name: n, Token: h.Token, Reason: "test", Force: true}, driver.Freed)
	h = b.obtains(n)
	seen.next(h.Token)
	b.frees(h)
	h = a.granted(n)
	seen.next(h.Token)
	a.frees(h)
}

func tokensOverIdle(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	h := a.granted(n, lasting(t.TTL()))
	seen.next(h.Token)
	a.frees(h)
	t.pause(2 * t.TTL())
	if t.h.Patient {
		t.pause(longTTL)
	}
	a.frees(a.granted(t.Name())) // whatever sweeps, sweeps now
	h = b.granted(n)
	seen.next(h.Token)
	b.frees(h)
	c := t.peer()
	h = c.granted(n)
	seen.next(h.Token)
	c.frees(h)
}

func tokensOverHandOver(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	h := a.granted(n)
	seen.next(h.Token)
	first, second := b.place(n), a.place(n)
	a.frees(h)
	h = b.told(first)
	seen.next(h.Token)
	b.frees(h)
	h = a.told(second)
	seen.next(h.Token)
	a.frees(h)
	h = b.granted(n)
	seen.next(h.Token)
	b.frees(h)
}

func tokensOfMany(t *T) {
	a, b := t.peers()
	kinds := map[Need]ask{NeedShared: shared, NeedPermits: permits(1, 4)}
	has := t.h.has(a.Store)
	for need, kind := range kinds {
		if has&need == 0 {
			continue
		}
		n, seen := t.Name(), rising{t: t}
		for range 2 {
			var holds [2]hold
			for i, p := range []*peer{a, b} {
				holds[i] = p.granted(n, kind)
				if need == NeedPermits && holds[i].Token == 0 {
					continue // a store may fence its locks only
				}
				seen.next(holds[i].Token)
			}
			a.frees(holds[0])
			b.frees(holds[1])
		}
	}
}

func tokensOfCrowd(t *T) {
	name := t.LockName()
	var mu sync.Mutex // the lock orders the holders; this is for the race detector
	var last uint64
	t.crowd(24, t.clients(3), func(_ int, c *holdfast.Client) {
		for range 4 {
			l := t.locks(c, name, nil)
			mu.Lock()
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = max(last, l.Token())
			mu.Unlock()
			t.frees(l)
		}
	})
}

func tokensOverRestart(t *T) {
	a, b := t.peers()
	n, seen := t.Name(), rising{t: t}
	h := a.granted(n)
	seen.next(h.Token)
	a.frees(h)
	if err := t.h.Restart(t.ctx); err != nil {
		t.Fatalf("restart: %v", err)
	}
	for _, p := range []*peer{b, a} {
		t.eventually("the store is back", func() bool {
			r := p.request(n, nil)
			res, err := p.Acquire(t.ctx, r)
			if err != nil || res.Status != driver.Granted {
				p.abandonQuietly(refTo(r))
				return false
			}
			h = p.holdOf(refTo(r), res.Grant)
			return true
		})
		seen.next(h.Token)
		p.frees(h)
	}
}

// abandonQuietly undoes an attempt of unknown outcome, if the store is there.
func (p *peer) abandonQuietly(ref driver.Ref) {
	_, _ = p.Release(p.t.ctx, &driver.ReleaseRequest{Ref: ref, Abandon: true})
}
