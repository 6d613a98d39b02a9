package etcdlock

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Break writes the reason into the holder's record, which its client watches. By
// force it deletes the record, and writes the reason into the owner's tombstone.
func (s *store) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	for {
		q, err := s.queueOf(ctx, req.Name.Key)
		if err != nil {
			return 0, err
		}
		p, status := q.find(req)
		if p == nil {
			return status, nil
		}
		if done, err := s.breakPlace(ctx, p, req); done != 0 || err != nil {
			return done, err
		}
	}
}

// queue is who holds a name and who waits for it, in order.
type queue []*place

// find is the holder that is meant.
func (q queue) find(req *driver.BreakRequest) (*place, driver.BreakStatus) {
	holders := q[:q.holders()]
	for _, p := range holders {
		if req.Token != 0 && req.Token == uint64(p.created) || req.Token == 0 && req.Owner == p.holder() { //nolint:gosec // a revision
			return p, 0
		}
	}
	if len(holders) > 0 {
		return nil, driver.Mismatch
	}
	return nil, driver.NotHeld
}

// breakPlace is 0 if the record was changed meanwhile.
func (s *store) breakPlace(ctx context.Context, p *place, req *driver.BreakRequest) (driver.BreakStatus, error) {
	same := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(p.key), "=", p.modified)}
	if !req.Force {
		marked := *p
		marked.broken = oneLine(cmp.Or(req.Reason, "no reason given"))
		answer, err := s.commit(ctx, txn{when: same, then: []clientv3.Op{clientv3.OpPut(p.key, marked.value(), clientv3.WithIgnoreLease())}})
		if err != nil || !answer.Succeeded {
			return 0, err
		}
		return driver.Marked, nil
	}
	end := []clientv3.Op{clientv3.OpDelete(p.key)}
	if tombs, err := s.pool.tombLease(ctx); err == nil && !p.kept {
		end = append(end, clientv3.OpPut(tombKey(req.Name.Key, &p.owner), "broken by force: "+oneLine(req.Reason), clientv3.WithLease(tombs.id)))
	}
	answer, err := s.commit(ctx, txn{when: same, then: end})
	if err != nil || !answer.Succeeded {
		return 0, err
	}
	return driver.Freed, nil
}

func (s *store) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	q, err := s.queueOf(ctx, n.Key)
	if err != nil {
		return driver.Record{}, err
	}
	left, err := s.left(ctx, q)
	if err != nil {
		return driver.Record{}, err
	}
	r := q.record(left)
	r.Name = n.Full
	return r, nil
}

func (s *store) queueOf(ctx context.Context, key string) (queue, error) {
	answer, err := s.commit(ctx, txn{then: []clientv3.Op{clientv3.OpGet(nameKey(key), clientv3.WithPrefix())}})
	if err != nil {
		return nil, err
	}
	q, ok := readQueue(answer.Responses[0].GetResponseRange().Kvs)
	if !ok {
		return nil, foreign
	}
	return q, nil
}

// readQueue reads the keys of one name; false if some are not ours.
func readQueue(kvs []*mvccpb.KeyValue) (queue, bool) {
	q := make(queue, 0, len(kvs))
	for _, kv := range kvs {
		p, ok := readPlace(kv)
		if !ok {
			return nil, false
		}
		q = append(q, p)
	}
	slices.SortFunc(q, func(a, b *place) int { return cmp.Compare(a.created, b.created) })
	return q, true
}

// holders is how many of the queue hold the name: the first of a lock, and the
// readers behind a reader; of permits as many as fit.
func (q queue) holders() int {
	used := 0
	for i, p := range q {
		switch p.mode {
		case driver.Permits:
			if used += p.n; used > p.limit {
				return i
			}
		case driver.Shared:
			if i > 0 && q[i-1].mode != driver.Shared {
				return i
			}
		case driver.Exclusive:
			return max(i, 1)
		}
	}
	return len(q)
}

func (q queue) record(left map[clientv3.LeaseID]time.Duration) driver.Record {
	r := driver.Record{Mode: driver.Exclusive}
	n := q.holders()
	for i, p := range q {
		if i == 0 {
			r.Name, r.Mode, r.Limit = p.name, p.mode, p.limit
		}
		if i < n {
			h := holderOf(p)
			h.Left = left[p.lease]
			r.Holders = append(r.Holders, *h)
		} else {
			r.Waiters = append(r.Waiters, driver.Waiter{Owner: p.owner, Label: p.label, Mode: p.mode, Permits: p.n, Waited: p.age()})
		}
	}
	return r
}

// age is since when a record is there, if its client's clock goes as ours: for
// people only.
func (p *place) age() time.Duration { return max(0, time.Since(time.UnixMilli(p.since))) }

// holder is nobody if the place is kept.
func (p *place) holder() driver.Owner {
	if p.kept {
		return driver.Owner{}
	}
	return p.owner
}

func holderOf(p *place) *driver.Holder {
	return &driver.Holder{
		Owner: p.holder(), Label: p.label, Token: uint64(p.created), Mode: p.mode, Permits: p.n, Held: p.age(), Broken: p.broken, Value: p.said, Seq: p.seq, //nolint:gosec // a revision
	}
}

// left asks how long the leases of the holders run yet.
func (s *store) left(ctx context.Context, q queue) (map[clientv3.LeaseID]time.Duration, error) {
	left := map[clientv3.LeaseID]time.Duration{}
	for _, p := range q[:q.holders()] {
		if _, asked := left[p.lease]; asked || p.lease == 0 {
			continue
		}
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		answer, err := s.pool.client.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: int64(p.lease)}, callOptions...)
		if err != nil {
			return nil, err
		}
		left[p.lease] = max(0, time.Duration(answer.TTL)*time.Second)
	}
	return left, nil
}

// page is how many keys one step of a listing reads.
const page = 1000

// List reads the keys of the prefix in their order, all as of one revision.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		from := root + escape(prefix) + "+"
		to, revision := clientv3.GetPrefixRangeEnd(from), int64(0)
		var name []*mvccpb.KeyValue // the keys of one name, which pages may part
		flush := func() bool {
			q, ok := readQueue(name)
			name = nil
			if !ok || len(q) == 0 { // not ours
				return true
			}
			left, err := s.left(ctx, q)
			return yield(q.record(left), err) && err == nil
		}
		for more := true; more; {
			answer, err := s.commit(ctx, txn{then: []clientv3.Op{clientv3.OpGet(from, clientv3.WithRange(to), clientv3.WithLimit(page), clientv3.WithRev(revision))}})
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			keys := answer.Responses[0].GetResponseRange()
			for _, kv := range keys.Kvs {
				if len(name) > 0 && nameOf(kv) != nameOf(name[0]) && !flush() {
					return
				}
				name = append(name, kv)
				from = string(kv.Key) + "\x00"
			}
			revision, more = answer.Header.Revision, keys.More
		}
		flush()
	}
}

func nameOf(kv *mvccpb.KeyValue) string {
	name, _, _ := strings.Cut(string(kv.Key)[len(root):], "/")
	return name
}
