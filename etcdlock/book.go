package etcdlock

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// book is what this client has in the cluster, and what it knows of it. Its lock
// is that of the watches too.
type book struct {
	s       *store
	mu      sync.Mutex
	entries map[driver.Owner]*entry
	scenes  map[string]*scene       // by the name's key
	client  uint64                  // is in our keys
	keys    map[driver.Owner]string // of attempts, holds and places
	taken   map[string]bool         // those of them that begin with client
}

// entry is a hold or a place of ours.
type entry struct {
	*place
	name  driver.Name
	lease *lease
	held  bool
	// claim is the window that a grant of the place is good for until it is first
	// renewed: the lease that places share runs longer. 0: as long as the lease.
	claim time.Duration
	// seen is the revision of the latest look, which counts where a watch stood by
	// then: what comes later the watch tells.
	seen int64
	own  *watch

	// Of a place: who came before it and keeps it waiting, newest first. all tells
	// that nobody else does. Nobody can come before it any more, as the order is
	// that of creation.
	before []*rival
	all    bool
	ahead  int

	looking, lookAgain bool
}

// rival is one who came before.
type rival struct {
	key   string
	n     int
	place *place
	watch *watch
}

func (b *book) init(s *store) {
	b.s, b.client, b.entries = s, rand.Uint64(), map[driver.Owner]*entry{}
	b.scenes = map[string]*scene{}
	b.keys, b.taken = map[driver.Owner]string{}, map[string]bool{}
}

// slot finds the key for an attempt: the one it had, else a free one from number
// on.
func (b *book) slot(req *driver.AcquireRequest, number uint64) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key, ok := b.keys[req.Owner]; ok && number == 0 {
		return key
	}
	b.free(req.Owner)
	for ; ; number++ {
		if key := slotKey(req.Name.Key, req.Mode, b.client, number); !b.taken[key] {
			b.keys[req.Owner], b.taken[key] = key, true
			return key
		}
	}
}

// free gives an owner's key away. Should it still be there, the next attempt that
// wants it finds out, and takes another; under mu.
func (b *book) free(owner driver.Owner) {
	delete(b.taken, b.keys[owner])
	delete(b.keys, owner)
}

// end frees the key of an attempt that surely came to nothing.
func (b *book) end(owner driver.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[owner] == nil {
		b.free(owner)
	}
}

func (b *book) entry(owner driver.Owner) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[owner]
}

// enter notes a grant.
func (b *book) enter(e *entry) driver.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e.owner] = e
	return b.grant(e)
}

// grant is what the holder may rely on: the lease lives for its window from the
// latest proof, and the key as long as the lease.
func (b *book) grant(e *entry) driver.Grant {
	return driver.Grant{Token: uint64(e.created), Window: e.window(), Sent: b.s.pool.sentOf(e.lease)} //nolint:gosec // revisions are positive
}

func (e *entry) window() time.Duration { return cmp.Or(e.claim, e.lease.window()) }

// wait notes a place, and watches it and those before it. What happened between
// the latest look and the watches' beginning, one more look finds.
func (b *book) wait(e *entry) driver.Queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e.owner] = e
	b.watch(e)
	return e.queue()
}

// changed notes what another revision of the record says; under mu.
func (e *entry) changed(p *place) {
	e.modified, e.label, e.broken, e.said, e.seq = p.modified, p.label, p.broken, p.said, p.seq
}

// watch begins what watches the entry needs; under mu.
func (b *book) watch(e *entry) {
	if e.own == nil {
		e.own = b.s.ears.watch(e, nil, e.key)
	}
	if e.held {
		return
	}
	for _, r := range e.needed() {
		if r.watch == nil {
			r.watch = b.s.ears.watch(e, r, r.key)
		}
	}
}

// needed is the least of those before of which one must go before the place can
// be granted.
func (e *entry) needed() []*rival {
	if e.mode != driver.Permits {
		return e.before
	}
	sum := 0
	for i, r := range e.before {
		if sum += r.n; sum > e.limit-e.n {
			return e.before[:i+1]
		}
	}
	return e.before
}

// fits tells whether nobody who is known to be before the place keeps it waiting.
func (e *entry) fits() bool {
	if e.mode == driver.Permits {
		return permitsOf(e.before)+e.n <= e.limit
	}
	return e.all && len(e.before) == 0
}

// live tells whether the watches tell all there is to know; under mu.
func (e *entry) live() bool {
	if e.own == nil || e.own.since == 0 || e.own.since > e.seen {
		return false
	}
	if e.held {
		return true
	}
	for _, r := range e.needed() {
		if r.watch == nil || r.watch.since == 0 || r.watch.since > e.seen {
			return false
		}
	}
	return true
}

// forget drops what we know of an owner; under mu.
func (b *book) forget(e *entry) {
	if b.entries[e.owner] == e {
		delete(b.entries, e.owner)
		b.free(e.owner)
	}
	b.unwatch(e)
}

func (b *book) unwatch(e *entry) {
	if e.own != nil {
		b.s.ears.unwatch(e.own)
		e.own = nil
	}
	for _, r := range e.before {
		if r.watch != nil {
			b.s.ears.unwatch(r.watch)
			r.watch = nil
		}
	}
}

// removed is what the book had of an owner, as it was then: a look that is on its way may
// still change the entry.
type removed struct {
	place place
	held  bool
}

// remove drops the exact grant or place, and tells under which key it is, or an
// attempt of the owner may be; "" if that is not known.
func (b *book) remove(ref *driver.Ref) (*removed, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, key := b.entries[ref.Owner], b.keys[ref.Owner]
	if e == nil {
		b.free(ref.Owner)
		return nil, key
	}
	if ref.Token != 0 && ref.Token != uint64(e.created) { //nolint:gosec // revisions are positive
		return nil, key
	}
	b.forget(e)
	return &removed{*e.place, e.held}, e.key
}

// win makes the place a hold; under mu.
func (b *book) win(e *entry) driver.Signal {
	for _, r := range e.before {
		if r.watch != nil {
			b.s.ears.unwatch(r.watch)
		}
	}
	e.held, e.before, e.all = true, nil, true
	return driver.Signal{Kind: driver.GrantSignal, Owner: e.owner, Grant: b.grant(e)}
}

// queue is what is told of a place.
func (e *entry) queue() driver.Queue {
	q := driver.Queue{Ahead: e.ahead, Again: e.window() / 4}
	if n := len(e.before); e.all && n > 0 && e.before[n-1].place != nil {
		q.Holder = holderOf(e.before[n-1].place)
	}
	return q
}

// leaseDied tells of all that hung on a lease.
func (b *book) leaseDied(l *lease) {
	var signals []driver.Signal
	missed := false
	b.mu.Lock()
	for _, e := range b.entries {
		if e.lease != l {
			continue
		}
		if b.forget(e); e.held {
			signals = append(signals, driver.Signal{Kind: driver.LostSignal, Owner: e.owner})
		} else {
			missed = true
		}
	}
	b.mu.Unlock()
	if missed { // their next beat is told that they are gone
		signals = append(signals, driver.Signal{Kind: driver.MissedSignal})
	}
	if len(signals) > 0 && b.s.life.Err() == nil {
		b.s.wg.Go(func() { b.s.ears.tell(signals) }) // not from within a method
	}
}

// know enters a key of ours that this client does not know: of a repeated
// request, or of a handle.
func (s *store) know(ctx context.Context, p *place, name driver.Name) (*entry, error) {
	if e := s.book.entry(p.owner); e != nil && e.created == p.created {
		return e, nil
	}
	l := &lease{id: p.lease}
	s.pool.mu.Lock()
	for _, ours := range s.pool.leases {
		if ours.id == p.lease {
			l = ours
		}
	}
	s.pool.mu.Unlock()
	if err := s.pool.prove(ctx, l, 0); err != nil {
		return nil, err
	}
	return &entry{place: p, name: name, lease: l}, nil
}

// looks asks the cluster about holds and places, and tells what became of them.
func (s *store) looks(ctx context.Context, entries []*entry) []driver.BeatResult {
	results := make([]driver.BeatResult, 0, len(entries))
	for part := range slices.Chunk(entries, maxBatch) {
		results = append(results, s.lookAt(ctx, part)...)
	}
	return results
}

func (s *store) lookAt(ctx context.Context, entries []*entry) []driver.BeatResult {
	ops := make([]clientv3.Op, 0, 2*len(entries))
	s.book.mu.Lock()
	for _, e := range entries {
		ops = append(ops, clientv3.OpGet(e.key), e.beforeOp())
	}
	s.book.mu.Unlock()
	answer, err := s.commit(ctx, txn{then: ops})
	if half := len(entries) / 2; half > 0 && asWhole(err) {
		return append(s.lookAt(ctx, entries[:half]), s.lookAt(ctx, entries[half:])...)
	}
	results := make([]driver.BeatResult, len(entries))
	for i, e := range entries {
		if results[i].Err = err; err == nil {
			own, before := answer.Responses[2*i].GetResponseRange(), answer.Responses[2*i+1].GetResponseRange()
			results[i] = s.book.looked(e, answer.Header.Revision, own.Kvs, before.Kvs, !before.More, int(before.Count))
		}
	}
	return results
}

// beforeOp reads who keeps the place waiting; under mu.
func (e *entry) beforeOp() clientv3.Op {
	in := rivals(e.name.Key, e.mode)
	if e.held {
		return clientv3.OpGet(e.key, clientv3.WithCountOnly())
	}
	if e.mode == driver.Permits {
		return clientv3.OpGet(in.from, clientv3.WithRange(in.to), clientv3.WithMaxCreateRev(e.created-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	}
	return newestBefore(in, e.created)
}

// looked takes a look's answer.
func (b *book) looked(e *entry, revision int64, own, kvs []*mvccpb.KeyValue, all bool, count int) driver.BeatResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	present, ok := (*place)(nil), false
	if len(own) > 0 {
		present, ok = readPlace(own[0])
	}
	if !ok || present.kept || present.created != e.created || present.owner != e.owner {
		b.forget(e)
		return driver.BeatResult{Status: driver.Gone}
	}
	if known := b.entries[e.owner]; known == nil {
		b.entries[e.owner], b.keys[e.owner] = e, e.key
	} else if known != e {
		return driver.BeatResult{Status: driver.Gone} // released and asked for meanwhile
	}
	if revision >= e.seen && !b.update(e, revision, present, kvs, all, count) {
		return driver.BeatResult{Status: driver.Gone} // the next attempt is told why
	}
	if e.held {
		return driver.BeatResult{Status: driver.Granted, Grant: b.grant(e)}
	}
	return driver.BeatResult{Status: driver.Waiting, Queue: e.queue()}
}

// update takes what a look found; false if somebody else's keys are among those
// before. Under mu.
func (b *book) update(e *entry, revision int64, present *place, kvs []*mvccpb.KeyValue, all bool, count int) bool {
	e.seen = revision
	if present.modified >= e.modified {
		e.changed(present)
	}
	if !e.held {
		before, ok := readRivals(kvs)
		if !ok {
			b.forget(e)
			return false
		}
		b.replace(e, before, all, count)
		if e.fits() {
			b.win(e)
		}
	}
	b.watch(e)
	return true
}

// replace takes a new list of those before, and keeps the watches of those who
// were in the old one; under mu.
func (b *book) replace(e *entry, before []*rival, all bool, count int) {
	for _, r := range e.before {
		i := slices.IndexFunc(before, func(n *rival) bool { return n.key == r.key })
		if r.watch == nil {
			continue
		}
		if i < 0 {
			b.s.ears.unwatch(r.watch)
			continue
		}
		before[i].watch, r.watch.rival = r.watch, before[i]
	}
	e.before, e.all = before, all
	e.ahead = min(max(0, count-2), e.ahead)
	if all {
		e.ahead = max(0, len(before)-1)
	}
}

// lookSoon looks on the store's own accord, one look at a time; under mu.
func (b *book) lookSoon(e *entry) {
	if e.looking {
		e.lookAgain = true
		return
	}
	if b.s.life.Err() != nil {
		return
	}
	e.looking = true
	b.s.wg.Go(func() { b.s.lookNow(e) })
}

// lookTime bounds a look of the store's own accord; the next beat does better.
const lookTime = 2 * time.Second

func (s *store) lookNow(e *entry) {
	for {
		ctx, cancel := context.WithTimeout(s.life, lookTime)
		s.book.mu.Lock()
		waiting := s.book.entries[e.owner] == e && !e.held
		e.lookAgain = false
		s.book.mu.Unlock()
		var signals []driver.Signal
		if waiting {
			switch res := s.looks(ctx, []*entry{e})[0]; {
			case res.Err != nil:
			case res.Status == driver.Granted:
				signals = []driver.Signal{{Kind: driver.GrantSignal, Owner: e.owner, Grant: res.Grant}}
			case res.Status == driver.Gone:
				signals = []driver.Signal{{Kind: driver.MissedSignal}}
			}
		}
		cancel()
		s.ears.tell(signals)
		s.book.mu.Lock()
		if !e.lookAgain || s.life.Err() != nil {
			e.looking = false
			s.book.mu.Unlock()
			return
		}
		s.book.mu.Unlock()
	}
}

func permitsOf(rivals []*rival) (sum int) {
	for _, r := range rivals {
		sum += r.n
	}
	return sum
}

// rivalsOf lists places newest first; they come oldest first.
func rivalsOf(places []*place) []*rival {
	rivals := make([]*rival, 0, len(places))
	for _, p := range slices.Backward(places) {
		rivals = append(rivals, &rival{key: p.key, n: p.n, place: p})
	}
	return rivals
}

// readRivals reads keys that come newest first; false if one is not ours.
func readRivals(kvs []*mvccpb.KeyValue) ([]*rival, bool) {
	rivals := make([]*rival, 0, len(kvs))
	for _, kv := range kvs {
		p, ok := readPlace(kv)
		if !ok {
			return nil, false
		}
		rivals = append(rivals, &rival{key: p.key, n: p.n, place: p})
	}
	return rivals, true
}
