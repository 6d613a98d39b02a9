package drivertest_test

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// full is all that the reference store implements.
type full interface {
	driver.Queuer
	driver.Batcher
	driver.Inspector
	driver.Lister
	driver.Breaker
	driver.Watcher
}

// broken is one client of a broken store: the reference store with a fault. A
// hook that is nil passes on.
type broken struct {
	full
	w       *world
	deliver func(driver.Signal)

	name     func(driver.Name) driver.Name
	acquire  func(context.Context, *driver.AcquireRequest) (driver.AcquireResult, error)
	batch    func([]driver.AcquireAnswer)
	renew    func(context.Context, driver.RenewRequest) driver.RenewResult
	renewals func([]driver.RenewResult)
	release  func(context.Context, *driver.ReleaseRequest) (bool, error)
	releases func([]*driver.ReleaseRequest) int // how many of a batch are done
	beat     func(context.Context, driver.Ref) driver.BeatResult
	signal   func(driver.Signal) []driver.Signal
	classify func(error) driver.Kind
	breaks   func(context.Context, *driver.BreakRequest) (driver.BreakStatus, error)
	inspect  func(driver.Record) driver.Record
	list     func(driver.Record) driver.Record
	setValue func(context.Context, *driver.ValueRequest) (bool, error)
	leader   func(*driver.Holder) *driver.Holder
	leads    func(driver.Name) *driver.Holder // instead of the reference's answer
	watch    func(changed func()) func()
	close    func()

	properties func(*driver.Properties)
}

// world is what the clients of one broken store share.
type world struct {
	server *memlock.Server

	mu      sync.Mutex
	clients []*broken
	asked   map[driver.Owner]*driver.AcquireRequest // every owner's request
	by      map[driver.Owner]*broken                // who sent it
	order   []driver.Owner                          // in order of their requests
	ended   map[driver.Owner]bool                   // was released
	phantom map[driver.Owner]bool                   // granted by the fault, unknown to the server
	tokens  map[driver.Owner][2]uint64              // the fault's token, the server's
	values  sync.Map                                // what value mutants keep
	over    sync.Map                                // names that were granted once too often
}

// newBroken makes the store of a mutant.
func newBroken(breakIt func(*broken)) func(context.Context) (driver.Store, error) {
	w := &world{
		server: memlock.NewServer(), asked: map[driver.Owner]*driver.AcquireRequest{}, by: map[driver.Owner]*broken{},
		ended: map[driver.Owner]bool{}, phantom: map[driver.Owner]bool{}, tokens: map[driver.Owner][2]uint64{},
	}
	return func(context.Context) (driver.Store, error) {
		b := &broken{full: w.server.Store().(full), w: w} //nolint:errcheck,forcetypeassert // the reference has all
		breakIt(b)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clients = append(w.clients, b)
		return b, nil
	}
}

func (b *broken) Properties() driver.Properties {
	p := b.full.Properties()
	if b.properties != nil {
		b.properties(&p)
	}
	return p
}

func (b *broken) named(n driver.Name) driver.Name {
	if b.name != nil {
		return b.name(n)
	}
	return n
}

// toServer is a reference as the server knows it.
func (b *broken) toServer(r driver.Ref) driver.Ref {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if pair, ok := b.w.tokens[r.Owner]; ok && r.Token != 0 {
		if r.Token == pair[0] {
			r.Token = pair[1]
		} else {
			r.Token = 1 // wrong here, wrong there
		}
	}
	r.Name = b.named(r.Name)
	return r
}

func (b *broken) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	kept := *req
	kept.Name = b.named(req.Name)
	b.w.mu.Lock()
	if b.w.asked[req.Owner] == nil {
		b.w.order = append(b.w.order, req.Owner)
	}
	b.w.asked[req.Owner], b.w.by[req.Owner] = &kept, b
	b.w.mu.Unlock()
	sent := kept
	if b.acquire != nil {
		return b.acquire(ctx, &sent)
	}
	return b.full.Acquire(ctx, &sent)
}

func (b *broken) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	answers := make([]driver.AcquireAnswer, len(reqs))
	for i, req := range reqs {
		answers[i].AcquireResult, answers[i].Err = b.Acquire(ctx, req)
	}
	if b.batch != nil && len(reqs) > 1 {
		b.batch(answers)
	}
	return answers
}

func (b *broken) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	res := make([]driver.RenewResult, len(reqs))
	for i, req := range reqs {
		req.Ref = b.toServer(req.Ref)
		switch {
		case b.isPhantom(req.Owner):
			res[i] = driver.RenewResult{Status: driver.Renewed, Window: max(req.TTL, time.Second)}
		case b.renew != nil:
			res[i] = b.renew(ctx, req)
		default:
			res[i] = b.one(ctx, req)
		}
	}
	if b.renewals != nil {
		b.renewals(res)
	}
	return res
}

// one is the reference's answer to one renewal.
func (b *broken) one(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
	return b.full.Renew(ctx, []driver.RenewRequest{req})[0]
}

func (b *broken) Release(ctx context.Context, req *driver.ReleaseRequest) (ok bool, err error) {
	sent := *req
	sent.Ref = b.toServer(req.Ref)
	switch {
	case b.isPhantom(req.Owner):
		ok = true
		b.w.mu.Lock()
		delete(b.w.phantom, req.Owner)
		b.w.mu.Unlock()
	case b.release != nil:
		ok, err = b.release(ctx, &sent)
	default:
		ok, err = b.full.Release(ctx, &sent)
	}
	if ok {
		b.w.mu.Lock()
		b.w.ended[req.Owner] = true
		b.w.mu.Unlock()
	}
	return ok, err
}

func (b *broken) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	answers := make([]driver.ReleaseAnswer, len(reqs))
	done := len(reqs)
	if b.releases != nil {
		done = b.releases(reqs)
	}
	for i, req := range reqs {
		if answers[i].Released = true; i < done {
			answers[i].Released, answers[i].Err = b.Release(ctx, req)
		}
	}
	return answers
}

func (b *broken) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	res := make([]driver.BeatResult, len(places))
	for i, place := range places {
		place.Name = b.named(place.Name)
		if b.beat != nil {
			res[i] = b.beat(ctx, place)
		} else {
			res[i] = b.full.Beat(ctx, []driver.Ref{place})[0]
		}
	}
	return res
}

func (b *broken) Listen(deliver func(driver.Signal)) {
	b.deliver = deliver
	b.full.Listen(func(s driver.Signal) {
		signals := []driver.Signal{s}
		if b.signal != nil {
			signals = b.signal(s)
		}
		for _, s := range signals {
			deliver(s)
		}
	})
}

func (b *broken) Classify(err error) driver.Kind {
	if b.classify != nil {
		return b.classify(err)
	}
	return b.full.Classify(err)
}

func (b *broken) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	sent := *req
	sent.Name = b.named(req.Name)
	b.w.mu.Lock()
	for _, pair := range b.w.tokens {
		if pair[0] == req.Token {
			sent.Token = pair[1]
		}
	}
	b.w.mu.Unlock()
	if b.breaks != nil {
		return b.breaks(ctx, &sent)
	}
	return b.full.Break(ctx, &sent)
}

func (b *broken) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	r, err := b.full.Inspect(ctx, b.named(n))
	if err == nil && b.inspect != nil {
		r = b.inspect(r)
	}
	for i, h := range r.Holders {
		b.w.mu.Lock()
		if pair, ok := b.w.tokens[h.Owner]; ok {
			r.Holders[i].Token = pair[0]
		}
		b.w.mu.Unlock()
	}
	return r, err
}

func (b *broken) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for r, err := range b.full.List(ctx, prefix) {
			if err == nil && b.list != nil {
				r = b.list(r)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (b *broken) SetValue(ctx context.Context, req *driver.ValueRequest) (bool, error) {
	sent := *req
	sent.Ref = b.toServer(req.Ref)
	switch {
	case b.isPhantom(req.Owner):
		return true, nil
	case b.setValue != nil:
		return b.setValue(ctx, &sent)
	}
	return b.full.SetValue(ctx, &sent)
}

func (b *broken) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	h, err := b.full.Leader(ctx, b.named(n))
	if err == nil && b.leads != nil {
		h = b.leads(b.named(n))
	}
	if h == nil || err != nil {
		return h, err
	}
	if b.leader != nil {
		h = b.leader(h)
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if pair, ok := b.w.tokens[h.Owner]; ok {
		h.Token = pair[0]
	}
	return h, err
}

func (b *broken) Watch(ctx context.Context, n driver.Name, changed func()) error {
	if b.watch != nil {
		changed = b.watch(changed)
	}
	return b.full.Watch(ctx, b.named(n), changed)
}

func (b *broken) Close() error {
	if b.close != nil {
		b.close()
	}
	return b.full.Close()
}

// What the mutants look up and do.

func (b *broken) isPhantom(o driver.Owner) bool {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return b.w.phantom[o]
}

func (b *broken) request(o driver.Owner) *driver.AcquireRequest {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return b.w.asked[o]
}

// look is the true record of a name.
func (b *broken) look(n driver.Name) driver.Record {
	r, _ := b.full.Inspect(context.Background(), n) // it never fails in memory
	return r
}

func (b *broken) waits(r driver.Ref) bool {
	for _, w := range b.look(r.Name).Waiters {
		if w.Owner == r.Owner {
			return true
		}
	}
	return false
}

// present is the present holder's grant, or r if there is none.
func (b *broken) present(r driver.Ref) driver.Ref {
	if hs := b.look(r.Name).Holders; len(hs) > 0 {
		r.Owner, r.Token = hs[0].Owner, hs[0].Token
	}
	return r
}

// conjure grants what the server refused.
func (b *broken) conjure(req *driver.AcquireRequest) driver.AcquireResult {
	b.w.mu.Lock()
	b.w.phantom[req.Owner] = true
	b.w.mu.Unlock()
	scratch := &driver.AcquireRequest{Name: driver.Name{Key: "scratch"}, Owner: req.Owner, Mode: driver.Exclusive, TTL: time.Second}
	res, _ := b.full.Acquire(context.Background(), scratch) // for its token
	_, _ = b.full.Release(context.Background(), &driver.ReleaseRequest{Ref: driver.Ref{Name: scratch.Name, Owner: scratch.Owner}})
	return driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: res.Grant.Token, Window: req.TTL}}
}

// retoken gives a grant another token than the server's.
func (b *broken) retoken(o driver.Owner, g *driver.Grant, mint func() uint64) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	pair, known := b.w.tokens[o]
	if !known {
		pair = [2]uint64{mint(), g.Token}
		b.w.tokens[o] = pair
	}
	g.Token = pair[0]
}
