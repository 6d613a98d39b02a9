package drivertest

import (
	"cmp"
	"crypto/rand"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// peer is one driver.Store within a case, and what it has said by itself.
type peer struct {
	driver.Store
	t *T

	mu    sync.Mutex
	heard []driver.Signal
}

// peer is a new client of the store, at the level of the contract.
func (t *T) peer() *peer {
	p := &peer{Store: t.Open(), t: t}
	if signaler, ok := p.Store.(driver.Signaler); ok {
		signaler.Listen(func(s driver.Signal) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.heard = append(p.heard, s)
		})
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// peers are two clients of the one store.
func (t *T) peers() (a, b *peer) { return t.peer(), t.peer() }

// hold is a grant, with the moments around the request that brought it.
type hold struct {
	driver.Ref
	grant driver.Grant
	// sent is before the request, so the store handled it later; got is after
	// the answer.
	sent, got driver.Instant
}

// ranOut tells whether the grant's window may be over by now.
func (h *hold) ranOut() bool {
	return h.grant.Window > 0 && driver.Now().Sub(cmp.Or(h.sent, h.got)) >= h.grant.Window
}

// ask shapes a request.
type ask func(*driver.AcquireRequest)

func newOwner() (o driver.Owner) {
	rand.Read(o[:])
	return o
}

func shared(r *driver.AcquireRequest) { r.Mode = driver.Shared }
func queued(r *driver.AcquireRequest) { r.Queue = true }
func unfair(r *driver.AcquireRequest) { r.Unfair = true }

func permits(n, limit int) ask {
	return func(r *driver.AcquireRequest) { r.Mode, r.N, r.Limit = driver.Permits, n, limit }
}

func bare(r *driver.AcquireRequest) { r.Bare = true }

func as(o driver.Owner) ask { return func(r *driver.AcquireRequest) { r.Owner = o } }

func lasting(ttl time.Duration) ask { return func(r *driver.AcquireRequest) { r.TTL = ttl } }

func claiming(window time.Duration) ask { return func(r *driver.AcquireRequest) { r.Claim = window } }

// longTTL is longer than any case but the patient ones.
const longTTL = 5 * time.Minute

func (p *peer) request(n driver.Name, asks []ask) *driver.AcquireRequest {
	r := &driver.AcquireRequest{Name: n, Owner: newOwner(), Label: "drivertest", Mode: driver.Exclusive, TTL: p.t.Long()}
	r.Claim = 4 * p.t.Steady() // none runs out for want of a core
	for _, shape := range asks {
		shape(r)
	}
	r.Claim = min(r.Claim, r.TTL)
	return r
}

// together is a name that may travel in one batch with another: of its shard.
func (p *peer) together(with driver.Name) driver.Name {
	sharder, ok := p.Store.(driver.Sharder)
	for {
		n := p.t.Name()
		if !ok || sharder.Shard(driver.Ref{Name: n}) == sharder.Shard(driver.Ref{Name: with}) {
			return n
		}
	}
}

func refTo(r *driver.AcquireRequest) driver.Ref {
	return driver.Ref{Name: r.Name, Owner: r.Owner, Mode: r.Mode}
}

// ask makes one attempt; an error is fatal.
func (p *peer) ask(n driver.Name, asks ...ask) (hold, driver.AcquireResult) {
	r := p.request(n, asks)
	sent := driver.Now()
	res, err := p.Acquire(p.t.ctx, r)
	if err != nil {
		p.t.Fatalf("acquire: %v", err)
	}
	h := hold{Ref: refTo(r), grant: res.Grant, sent: sent, got: driver.Now()}
	h.Token = res.Grant.Token
	return h, res
}

// granted makes one attempt that must succeed.
func (p *peer) granted(n driver.Name, asks ...ask) hold {
	h, res := p.ask(n, asks...)
	if res.Status != driver.Granted {
		p.t.Fatalf("attempt on a free name: status %d, want granted", res.Status)
	}
	return h
}

// refused makes one attempt that must be answered Held.
func (p *peer) refused(n driver.Name, why string, asks ...ask) {
	if _, res := p.ask(n, asks...); res.Status != driver.Held {
		p.t.Errorf("%s: status %d, want held", why, res.Status)
	}
}

// place makes one attempt that must be answered Waiting.
func (p *peer) place(n driver.Name, asks ...ask) driver.Ref {
	h, res := p.ask(n, append(asks, queued)...)
	if res.Status != driver.Waiting {
		p.t.Fatalf("attempt to queue: status %d, want waiting", res.Status)
	}
	return h.Ref
}

// obtains tries again and again until granted.
func (p *peer) obtains(n driver.Name, asks ...ask) hold {
	var h hold
	p.t.eventually("the name becomes free", func() bool {
		var res driver.AcquireResult
		h, res = p.ask(n, asks...)
		return res.Status == driver.Granted
	})
	return h
}

// renewed asks for one renewal; an error is fatal.
func (p *peer) renewed(ref driver.Ref, ttl time.Duration) driver.RenewResult {
	return p.renewals(driver.RenewRequest{Ref: ref, TTL: ttl})[0]
}

func (p *peer) renewals(reqs ...driver.RenewRequest) []driver.RenewResult {
	res := p.Renew(p.t.ctx, reqs)
	if len(res) != len(reqs) {
		p.t.Fatalf("%d answers to %d renewals", len(res), len(reqs))
	}
	for _, r := range res {
		if r.Err != nil {
			p.t.Fatalf("renew: %v", r.Err)
		}
	}
	return res
}

// keeps asserts what a renewal answers.
func (p *peer) keeps(ref driver.Ref, want driver.RenewStatus, why string) {
	if got := p.renewed(ref, p.t.Long()); got.Status != want {
		p.t.Errorf("renewal of %s: status %d, want %d", why, got.Status, want)
	}
}

// released ends a grant or place.
func (p *peer) released(ref driver.Ref) bool {
	return p.releases(&driver.ReleaseRequest{Ref: ref})
}

// abandoned ends whatever the owner has or may yet get.
func (p *peer) abandoned(ref driver.Ref) bool {
	ref.Token = 0
	return p.releases(&driver.ReleaseRequest{Ref: ref, Abandon: true})
}

func (p *peer) releases(r *driver.ReleaseRequest) bool {
	ok, err := p.Release(p.t.ctx, r)
	if err != nil {
		p.t.Fatalf("release: %v", err)
	}
	return ok
}

// frees releases a grant that must be there, unless this machine was so busy
// that the grant may have run out.
func (p *peer) frees(h hold) {
	if !p.released(h.Ref) && !h.ranOut() {
		p.t.Errorf("release of a live grant answered false")
	}
}

// grantSignals returns what was said of an owner's grant, so far.
func (p *peer) grantSignals(owner driver.Owner) (found []driver.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.heard {
		if s.Kind == driver.GrantSignal && s.Owner == owner {
			found = append(found, s)
		}
	}
	return found
}

// told waits for the signal that a place was granted. It does not beat: the
// message alone must do.
func (p *peer) told(ref driver.Ref) hold {
	var got []driver.Signal
	p.t.eventually("a grant signal for the waiter", func() bool {
		got = p.grantSignals(ref.Owner)
		return len(got) > 0
	})
	return p.holdOf(ref, got[0].Grant)
}

func (p *peer) holdOf(ref driver.Ref, g driver.Grant) hold {
	ref.Token = g.Token
	return hold{Ref: ref, grant: g, got: driver.Now()}
}

// beats asks once what became of a place.
func (p *peer) beats(ref driver.Ref) driver.BeatResult {
	res := queuer(p.t, p.Store).Beat(p.t.ctx, []driver.Ref{ref})
	if len(res) != 1 || res[0].Err != nil {
		p.t.Fatalf("beat: %+v", res)
	}
	return res[0]
}

// moved beats until the place is granted, as a client does whose holder ahead
// has died.
func (p *peer) moved(ref driver.Ref) hold {
	var g driver.Grant
	p.t.eventually("the queue moves on", func() bool {
		res := p.beats(ref)
		g = res.Grant
		return res.Status == driver.Granted
	})
	return p.holdOf(ref, g)
}
