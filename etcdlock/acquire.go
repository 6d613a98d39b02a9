package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	a := s.AcquireMany(ctx, []*driver.AcquireRequest{req})[0]
	return a.AcquireResult, a.Err
}

// AcquireMany sends what all attempts ask in one transaction. Few need another
// one: those for permits of a semaphore in use, and a client's first wait.
func (s *store) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	attempts := s.attempts(ctx, reqs)
	s.attempt(ctx, attempts)
	return s.answers(attempts)
}

// attempts are those on their way.
func (s *store) attempts(ctx context.Context, reqs []*driver.AcquireRequest) []*attempt {
	attempts := make([]*attempt, len(reqs))
	for i, req := range reqs {
		attempts[i] = &attempt{s: s, req: req}
		if e := s.book.entry(req.Owner); e != nil {
			attempts[i].again(ctx, e)
		}
		attempts[i].place = newPlace(req, s.book.slot(req, 0))
	}
	return attempts
}

func (s *store) answers(attempts []*attempt) []driver.AcquireAnswer {
	answers := make([]driver.AcquireAnswer, len(attempts))
	for i, a := range attempts {
		if a.err == nil && (a.res.Status == driver.Held || a.res.Status == driver.Gone) || a.err != nil && classify(a.err) != driver.Indeterminate {
			s.book.end(a.req.Owner)
		}
		answers[i] = driver.AcquireAnswer{AcquireResult: a.res, Err: a.err}
	}
	return answers
}

// A place lives as long without a heartbeat as a hold of the same TTL, but longer
// than the claim window by this: a grant hangs on the place's lease until it is
// claimed, and whoever dies before that is to cost no more than one who dies later.
const (
	leastSlack = time.Second
	mostSlack  = 5 * time.Second
)

func placeTTL(req *driver.AcquireRequest) time.Duration {
	return min(max(req.TTL, req.Claim+leastSlack), req.Claim+mostSlack)
}

// rounds is how often an attempt may be sent, each time because the one before
// was surely not applied.
const rounds = 64

func (s *store) attempt(ctx context.Context, attempts []*attempt) {
	for range rounds {
		open := prepared(ctx, attempts)
		if len(open) == 0 {
			return
		}
		s.send(ctx, open)
	}
	for _, a := range attempts {
		if !a.done {
			a.fail(&driver.Failure{Kind: driver.Unavailable, Err: errors.New("etcd: too many others ask for the name")})
		}
	}
}

// prepared are those that have no answer yet, and what they need for the next round.
func prepared(ctx context.Context, attempts []*attempt) (open []*attempt) {
	for _, a := range attempts {
		if !a.done && a.prepare(ctx) {
			open = append(open, a)
		}
	}
	return open
}

// send makes one transaction of attempts, and lets each read its answer. One of
// which a lease had ended, or which one attempt spoils for all, was not applied.
func (s *store) send(ctx context.Context, open []*attempt) {
	proofs := s.refresh(ctx, open)
	t := open[0].txn()
	if len(open) > 1 {
		t = txn{}
		for _, a := range open {
			t.then = append(t.then, a.txn().op())
		}
	}
	answer, err := s.commit(ctx, t)
	proofs()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.bury(ctx, open, err)
	case len(open) > 1 && asWhole(err):
		s.send(ctx, open[:len(open)/2])
		s.send(ctx, open[len(open)/2:])
	case err != nil:
		for _, a := range open {
			a.fail(err)
		}
	case len(open) == 1:
		open[0].read(ctx, answer.Header.Revision, answer.Succeeded, answer.Responses)
	default:
		readAll(ctx, open, answer)
	}
}

// readAll reads the answers to attempts that begin a transaction.
func readAll(ctx context.Context, open []*attempt, answer *clientv3.TxnResponse) {
	for i, a := range open {
		one := answer.Responses[i].GetResponseTxn()
		a.read(ctx, answer.Header.Revision, one.Succeeded, one.Responses)
	}
}

// bury finds out which of the attempts' leases the cluster does not know any more:
// what hangs on the others is not lost.
func (s *store) bury(ctx context.Context, open []*attempt, why error) {
	asked := map[*lease]bool{}
	for _, a := range open {
		for _, l := range []*lease{a.hold, a.wait} {
			if l == nil || asked[l] {
				continue
			}
			asked[l] = true
			if s.pool.prove(ctx, l, 0) != nil {
				a.fail(why)
			}
		}
	}
}

// refresh has the leases proved that will be old when the grant comes, while the
// transaction is away; the function that it returns waits for that.
func (s *store) refresh(ctx context.Context, open []*attempt) (wait func()) {
	var done []chan struct{}
	seen := map[*lease]bool{}
	for _, a := range open {
		for _, l := range []*lease{a.hold, a.wait} {
			if l == nil || seen[l] || s.pool.age(l) <= l.window()/10 {
				continue
			}
			seen[l] = true
			ended := make(chan struct{})
			done = append(done, ended)
			s.wg.Go(func() {
				defer close(ended)
				_ = s.pool.prove(ctx, l, l.window()/10) // else the grant is trusted for less
			})
		}
	}
	return func() {
		for _, ended := range done {
			<-ended
		}
	}
}

// attempt is one on its way.
type attempt struct {
	s          *store
	req        *driver.AcquireRequest
	place      *place
	hold, wait *lease // what a grant, and a place in the queue, hang on; wait may be nil
	// Permits are counted here, so they are asked for twice: look, then take unless
	// somebody came since.
	looked int64
	before []*rival
	slot   uint64 // its key's number is no less
	// puzzled: a place was refused for no reason that was seen.
	puzzled bool

	done bool
	res  driver.AcquireResult
	err  error
}

func (a *attempt) fail(err error) { a.done, a.err = true, err }

// prepare has the leases made that are not there.
func (a *attempt) prepare(ctx context.Context) bool {
	var err error
	if a.hold, err = a.s.pool.get(ctx, a.req.TTL, 0); err != nil {
		a.fail(err)
		return false
	}
	if a.req.Queue && a.wait != nil {
		if a.wait, err = a.s.pool.get(ctx, placeTTL(a.req), 0); err != nil {
			a.fail(err)
			return false
		}
	} else if a.req.Queue {
		a.wait = a.s.pool.at(placeTTL(a.req))
	}
	return true
}

// Ranges of a name's keys.
type span struct{ from, to string }

func (s span) empty() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.from), "=", 0).WithRange(s.to)
}

func (a *attempt) all() span {
	name := nameKey(a.req.Name.Key)
	return span{name, clientv3.GetPrefixRangeEnd(name)}
}

// rivals is where those are who can keep the attempt waiting.
func rivals(key string, mode driver.Mode) span {
	kind := kindKey(key, mode)
	if mode == driver.Shared {
		kind += writers
	}
	return span{kind, clientv3.GetPrefixRangeEnd(kind)}
}

// strangers is where nothing may be: other kinds of things, or what is not ours.
func (a *attempt) strangers() []clientv3.Cmp {
	kind, all := kindKey(a.req.Name.Key, a.req.Mode), a.all()
	if a.req.Mode == driver.Permits {
		return []clientv3.Cmp{span{all.from, kind + "p"}.empty(), span{kind + "q", all.to}.empty()}
	}
	return []clientv3.Cmp{span{all.from, kind + "s"}.empty(), span{kind + "t", kind + "x"}.empty(), span{kind + "y", all.to}.empty()}
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// txn is what the attempt asks. The first step of a lock takes a free name; only
// if it is not free the second one, within the same transaction, takes a place
// and tells who is before it.
func (a *attempt) txn() txn {
	tomb := tombKey(a.req.Name.Key, &a.req.Owner)
	look := []clientv3.Op{clientv3.OpGet(nameKey(a.req.Name.Key), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(a.lookAt()))}
	if a.req.Mode == driver.Shared { // many may hold, and its key may be another's yet
		look = append(look, clientv3.OpGet(a.place.key))
	}
	t := txn{when: []clientv3.Cmp{absent(tomb)}, then: []clientv3.Op{a.put(a.hold)}, orElse: look}
	switch a.req.Mode {
	case driver.Exclusive:
		t.when = append(t.when, a.all().empty())
	case driver.Shared:
		all, kind := a.all(), kindKey(a.req.Name.Key, driver.Shared)
		t.when = append(t.when, span{all.from, kind + "s"}.empty(), span{kind + "t", all.to}.empty(), absent(a.place.key))
	case driver.Permits:
		kind := rivals(a.req.Name.Key, driver.Permits)
		t.when = append(append(t.when, a.strangers()...), absent(a.place.key),
			clientv3.Compare(clientv3.CreateRevision(kind.from), "<", a.looked+1).WithRange(kind.to))
		if a.looked > 0 && !a.fits() {
			t.then = []clientv3.Op{a.put(a.wait)}
		}
		return t
	}
	if a.wait != nil {
		t.orElse = []clientv3.Op{txn{
			when:   append(a.strangers(), absent(tomb), absent(a.place.key)),
			then:   []clientv3.Op{newestBefore(rivals(a.req.Name.Key, a.req.Mode), 0), a.put(a.wait)},
			orElse: look,
		}.op()}
	}
	return t
}

// lookAt is how many of the name's keys are looked at: for permits all are
// counted, and all are after a refusal that the first two did not explain.
func (a *attempt) lookAt() int64 {
	if a.req.Mode == driver.Permits || a.puzzled {
		return 0
	}
	return 2
}

// watched is how many of those before a place of a lock are known, and watched:
// when the second one goes there is time to look whether the first is the last.
const watched = 2

// newestBefore reads who came before a revision; 0: all who are there.
func newestBefore(in span, revision int64) clientv3.Op {
	opts := []clientv3.OpOption{
		clientv3.WithRange(in.to), clientv3.WithLimit(watched),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
	}
	if revision > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(revision-1))
	}
	return clientv3.OpGet(in.from, opts...)
}

func (a *attempt) put(l *lease) clientv3.Op {
	return clientv3.OpPut(a.place.key, a.place.value(), clientv3.WithLease(l.id))
}

func (a *attempt) fits() bool { return permitsOf(a.before)+a.req.N <= a.req.Limit }

// read takes the answer: of the step that took the name or, for permits, a
// place; of that which took a place of a lock; or of a look.
func (a *attempt) read(ctx context.Context, revision int64, took bool, responses []*pb.ResponseOp) {
	if took {
		a.place.created, a.place.modified = revision, revision
		if a.req.Mode == driver.Permits && a.looked > 0 && !a.fits() {
			a.waits(a.looked, a.before, true, len(a.before))
			return
		}
		a.granted(a.hold)
		return
	}
	if a.req.Mode != driver.Permits && a.wait != nil {
		second := responses[0].GetResponseTxn()
		if second.Succeeded {
			a.place.created, a.place.modified = revision, revision
			look := second.Responses[0].GetResponseRange()
			before, ok := readRivals(look.Kvs)
			if !ok {
				a.withdraw(ctx)
				return
			}
			a.waits(revision, before, !look.More, int(look.Count))
			return
		}
		responses = second.Responses
	}
	a.readLook(ctx, revision, responses)
}

func (a *attempt) granted(l *lease) {
	e := &entry{place: a.place, name: a.req.Name, lease: l, held: true, seen: a.place.created}
	a.done, a.res = true, driver.AcquireResult{Status: driver.Granted, Grant: a.s.book.enter(e)}
}

func (a *attempt) waits(seen int64, before []*rival, all bool, count int) {
	e := &entry{
		place: a.place, name: a.req.Name, lease: a.wait, claim: time.Duration(seconds(a.req.Claim)) * time.Second,
		seen: seen, before: before, all: all, ahead: max(0, count-1),
	}
	a.done, a.res = true, driver.AcquireResult{Status: driver.Waiting, Queue: a.s.book.wait(e)}
}

// withdraw takes back a place behind what is not ours.
func (a *attempt) withdraw(ctx context.Context) {
	if _, err := a.s.commit(ctx, txn{then: []clientv3.Op{clientv3.OpDelete(a.place.key)}}); err != nil {
		a.fail(err)
		return
	}
	a.fail(foreign)
}

// readLook reads the first keys of the name.
func (a *attempt) readLook(ctx context.Context, revision int64, responses []*pb.ResponseOp) {
	look := responses[0].GetResponseRange()
	places, err := a.readPlaces(look.Kvs)
	if err != nil {
		a.fail(err)
		return
	}
	own := places
	if len(responses) > 1 {
		if own, err = a.readPlaces(responses[1].GetResponseRange().Kvs); err != nil {
			a.fail(err)
			return
		}
	}
	if i := slices.IndexFunc(own, func(p *place) bool { return p.key == a.place.key }); i >= 0 {
		if p := own[i]; !p.kept && p.owner == a.req.Owner {
			a.repeated(ctx, p)
			return
		}
		a.slot++ // whoever had it before is not gone yet
		a.place.key = a.s.book.slot(a.req, a.slot)
		return
	}
	if len(places) == 0 || a.puzzled || a.req.Mode == driver.Permits && a.looked > 0 && len(places) == len(a.before) {
		if a.gone(ctx); a.done {
			return
		}
	}
	held := driver.AcquireResult{Status: driver.Held, Queue: driver.Queue{Ahead: max(0, int(look.Count)-1)}}
	if len(places) > 0 {
		held.Queue.Holder = holderOf(places[0])
	}
	if a.req.Mode == driver.Permits {
		a.looked, a.before = revision, rivalsOf(places)
		if a.fits() {
			return // take them
		}
	}
	if !a.req.Queue {
		a.done, a.res = true, held
		return
	}
	if a.wait != nil && a.req.Mode != driver.Permits {
		a.puzzled = true // neither a place, nor a reason
	}
	if a.wait == nil {
		if a.wait, err = a.s.pool.get(ctx, placeTTL(a.req), 0); err != nil {
			a.fail(err)
		}
	}
}

// gone finds out whether a tombstone is why the attempt is refused.
func (a *attempt) gone(ctx context.Context) {
	answer, err := a.s.commit(ctx, txn{then: []clientv3.Op{clientv3.OpGet(tombKey(a.req.Name.Key, &a.req.Owner))}})
	if err != nil {
		a.fail(err)
	} else if answer.Responses[0].GetResponseRange().Count > 0 {
		a.done, a.res = true, driver.AcquireResult{Status: driver.Gone}
	}
}

// readPlaces reads the keys of a name, and refuses what is of another kind.
func (a *attempt) readPlaces(kvs []*mvccpb.KeyValue) ([]*place, error) {
	places := make([]*place, 0, len(kvs))
	for _, kv := range kvs {
		p, ok := readPlace(kv)
		switch {
		case !ok:
			return nil, foreign
		case (p.mode == driver.Permits) != (a.req.Mode == driver.Permits), p.limit != a.req.Limit:
			return nil, otherKind(p.limit, a.req.Limit)
		}
		places = append(places, p)
	}
	return places, nil
}

// repeated answers a request that was applied before.
func (a *attempt) repeated(ctx context.Context, p *place) {
	e, err := a.s.know(ctx, p, a.req.Name)
	if err != nil {
		a.fail(err)
		return
	}
	if a.again(ctx, e); !a.done {
		a.done, a.res = true, driver.AcquireResult{Status: driver.Gone}
	}
}

// again looks what the owner has. It is not done if that is nothing any more.
func (a *attempt) again(ctx context.Context, e *entry) {
	res := a.s.looks(ctx, []*entry{e})[0]
	if a.done = res.Status != driver.Gone; a.done {
		a.err, a.res = res.Err, driver.AcquireResult{Status: res.Status, Grant: res.Grant, Queue: res.Queue}
	}
}
