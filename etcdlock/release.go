package etcdlock

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	a := s.ReleaseMany(ctx, []*driver.ReleaseRequest{req})[0]
	return a.Released, a.Err
}

func (s *store) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	answers := make([]driver.ReleaseAnswer, len(reqs))
	endings := s.endings(ctx, reqs, answers)
	s.finish(ctx, endings, s.release(ctx, stepsOf(endings)), answers)
	return answers
}

// ending is a release on its way.
type ending struct {
	number int // of its request
	req    *driver.ReleaseRequest
	known  *removed
	key    string
	err    error // of the search for its key
	step   txn
	brief  bool // the step is only for a record that is as it was granted
}

// endings are the releases that have something to end; the others are answered.
func (s *store) endings(ctx context.Context, reqs []*driver.ReleaseRequest, answers []driver.ReleaseAnswer) []*ending {
	all := make([]*ending, len(reqs))
	var unknown []*ending
	for i, req := range reqs {
		e := &ending{number: i, req: req}
		if e.known, e.key = s.book.remove(&req.Ref); e.key == "" {
			unknown = append(unknown, e)
		}
		all[i] = e
	}
	s.search(ctx, unknown)
	endings := make([]*ending, 0, len(reqs))
	for _, e := range all {
		e.prepare(ctx, s)
		if answers[e.number].Err = e.err; e.err == nil && e.step.then != nil {
			endings = append(endings, e)
		}
	}
	return endings
}

// prepare makes the step: that which ends the exact grant, if its token is known,
// and never what is kept of it. There is none if the owner has nothing.
func (e *ending) prepare(ctx context.Context, s *store) {
	switch {
	case e.err != nil || e.key == "":
	case e.known != nil && e.known.held && e.req.Token != 0 && e.req.Keep == 0 && !e.req.Abandon:
		e.brief = true
		e.step = txn{
			when: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(e.key), "=", int64(e.req.Token))}, //nolint:gosec // a revision
			then: []clientv3.Op{clientv3.OpDelete(e.key)},
		}
	default:
		e.step, e.err = s.releaseStep(ctx, e.req, e.known, e.key)
	}
}

func stepsOf(endings []*ending) []txn {
	steps := make([]txn, len(endings))
	for i, e := range endings {
		steps[i] = e.step
	}
	return steps
}

// finish notes the answers. A record that was changed meanwhile, as by a break, is
// compared by its owner.
func (s *store) finish(ctx context.Context, endings []*ending, done, answers []driver.ReleaseAnswer) {
	var changed []*ending
	for k, e := range endings {
		answers[e.number] = done[k]
		if e.brief && done[k].Err == nil && !done[k].Released {
			e.brief, e.step = false, txn{when: exact(e.key, e.req), then: e.step.then}
			changed = append(changed, e)
		}
	}
	if len(changed) > 0 {
		s.finish(ctx, changed, s.release(ctx, stepsOf(changed)), answers)
	}
}

// exact compares that the record under a key is the owner's grant, and not kept.
func exact(key string, req *driver.ReleaseRequest) []clientv3.Cmp {
	when := owned(key, req.Mode, &req.Owner)
	if req.Token != 0 {
		when = append(when, clientv3.Compare(clientv3.CreateRevision(key), "=", int64(req.Token))) //nolint:gosec // a revision
	}
	return when
}

// releaseStep ends, or keeps, what the owner has under a key.
func (s *store) releaseStep(ctx context.Context, req *driver.ReleaseRequest, known *removed, key string) (txn, error) {
	step := txn{when: exact(key, req)}
	if req.Keep > 0 && (known != nil && known.held || known == nil && req.Token != 0) { // not of a place
		put, err := s.keep(ctx, req, key, known)
		if step.then = []clientv3.Op{put}; err != nil || put.IsPut() {
			return step, err
		}
	}
	step.then = []clientv3.Op{clientv3.OpDelete(key)}
	if !req.Abandon {
		return step, nil
	}
	tomb, err := s.tomb(ctx, &req.Ref)
	if err != nil || tomb == nil {
		return step, err
	}
	step.then = append(step.then, tomb...)
	step.orElse = tomb
	return step, nil
}

// tomb is what refuses late attempts of an owner: nothing if the cluster is full,
// for it refuses them by itself.
func (s *store) tomb(ctx context.Context, ref *driver.Ref) ([]clientv3.Op, error) {
	tombs, err := s.pool.tombLease(ctx)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []clientv3.Op{clientv3.OpPut(tombKey(ref.Name.Key, &ref.Owner), "", clientv3.WithLease(tombs.id))}, nil
}

// search looks for owners of whom this client does not know the key: of another
// one's attempt, or of one that was abandoned before. What arrives later finds
// its tombstone. All are looked for at once: who travels with them waits for it.
func (s *store) search(ctx context.Context, unknown []*ending) {
	if len(unknown) == 0 {
		return
	}
	answer, err := s.look(ctx, unknown)
	if half := len(unknown) / 2; half > 0 && asWhole(err) {
		s.search(ctx, unknown[:half])
		s.search(ctx, unknown[half:])
		return
	}
	for i, e := range unknown {
		if e.err = err; err != nil {
			continue
		}
		if p := findOwner(answer.Responses[i].GetResponseRange().Kvs, &e.req.Owner); p != nil {
			e.key = p.key
		}
	}
}

// look reads where the owners may be, and puts the tombstones of the abandoned ones.
func (s *store) look(ctx context.Context, unknown []*ending) (*clientv3.TxnResponse, error) {
	var looks, tombs []clientv3.Op
	for _, e := range unknown {
		looks = append(looks, kindOp(&e.req.Ref))
		if e.req.Abandon {
			tomb, err := s.tomb(ctx, &e.req.Ref)
			if err != nil {
				return nil, err
			}
			tombs = append(tombs, tomb...)
		}
	}
	answer, err := s.commit(ctx, txn{then: slices.Concat(looks, tombs)})
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.pool.dropTombs()
		return s.commit(ctx, txn{then: looks})
	}
	return answer, err
}

// kindOp reads where an owner's key is, whichever it is.
func kindOp(ref *driver.Ref) clientv3.Op {
	return clientv3.OpGet(kindKey(ref.Name.Key, ref.Mode)+letter(ref.Mode), clientv3.WithPrefix())
}

func findOwner(kvs []*mvccpb.KeyValue, owner *driver.Owner) *place {
	for _, kv := range kvs {
		if p, ok := readPlace(kv); ok && !p.kept && p.owner == *owner {
			return p
		}
	}
	return nil
}

// keep puts the record again without its owner on a lease of the rest: at the
// same place of the order. It is no Put if there is nothing to keep.
func (s *store) keep(ctx context.Context, req *driver.ReleaseRequest, key string, known *removed) (clientv3.Op, error) {
	var kept place
	if known != nil {
		kept = known.place
	} else {
		answer, err := s.commit(ctx, txn{then: []clientv3.Op{clientv3.OpGet(key)}})
		if err != nil {
			return clientv3.Op{}, err
		}
		own := answer.Responses[0].GetResponseRange()
		if own.Count == 0 {
			return clientv3.Op{}, nil
		}
		p, ok := readPlace(own.Kvs[0])
		if !ok {
			return clientv3.Op{}, foreign
		}
		kept = *p
	}
	rest, err := s.pool.grant(ctx, seconds(req.Keep))
	if err != nil {
		return clientv3.Op{}, err
	}
	kept.kept, kept.label = true, kept.label+" (released)"
	return clientv3.OpPut(key, kept.value(), clientv3.WithLease(rest.id)), nil
}

// release sends the steps in one transaction.
func (s *store) release(ctx context.Context, steps []txn) []driver.ReleaseAnswer {
	answers := make([]driver.ReleaseAnswer, len(steps))
	if len(steps) == 0 {
		return answers
	}
	t := steps[0]
	if len(steps) > 1 {
		t = txn{}
		for _, step := range steps {
			t.then = append(t.then, step.op())
		}
	}
	answer, err := s.commit(ctx, t)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrNoSpace):
		return s.releaseWithout(ctx, steps, err)
	case len(steps) > 1 && asWhole(err):
		half := len(steps) / 2
		return append(s.release(ctx, steps[:half]), s.release(ctx, steps[half:])...)
	case err != nil:
		for i := range answers {
			answers[i].Err = err
		}
	case len(steps) == 1:
		answers[0].Released = answer.Succeeded
	default:
		for i := range answers {
			answers[i].Released = answer.Responses[i].GetResponseTxn().Succeeded
		}
	}
	return answers
}

// releaseWithout does what needs no write: without tombstones, if the cluster has
// no room for them or their lease has ended.
func (s *store) releaseWithout(ctx context.Context, steps []txn, why error) []driver.ReleaseAnswer {
	s.pool.dropTombs()
	answers := make([]driver.ReleaseAnswer, len(steps))
	var bare []txn
	var of []int
	for i, step := range steps {
		if step.then[0].IsPut() { // to keep a name needs one
			answers[i].Err = why
			continue
		}
		wrote := len(step.then) > 1 || len(step.orElse) > 0
		step.then, step.orElse = step.then[:1], nil
		if wrote || len(steps) > 1 {
			bare, of = append(bare, step), append(of, i)
		} else {
			answers[i].Err = why
		}
	}
	for k, done := range s.release(ctx, bare) {
		answers[of[k]] = done
	}
	return answers
}
