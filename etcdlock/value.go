package etcdlock

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// SetValue writes the value into the holder's record.
func (s *store) SetValue(ctx context.Context, req *driver.ValueRequest) (held bool, err error) {
	a := &asked{req: &driver.RenewRequest{Ref: req.Ref}}
	s.present(ctx, []*asked{a})
	if a.e == nil {
		return false, a.res.Err
	}
	for {
		s.book.mu.Lock()
		p, holds := *a.e.place, a.e.held && s.book.entries[a.e.owner] == a.e
		s.book.mu.Unlock()
		if !holds {
			res := s.looks(ctx, []*entry{a.e})[0]
			if res.Err != nil || res.Status != driver.Granted {
				return false, res.Err
			}
			continue
		}
		if p.seq >= req.Seq {
			// Known from our own writing or from the cluster; that the hold is still there is
			// asked.
			res := s.looks(ctx, []*entry{a.e})[0]
			return res.Err == nil && res.Status == driver.Granted, res.Err
		}
		p.said, p.seq = req.Value, req.Seq
		if done, err := s.putAgain(ctx, a.e, &p, nil); err != nil || done {
			return err == nil && s.book.has(a.e), err
		}
	}
}

func (b *book) has(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[e.owner] == e
}

// Leader reads the first key of the name.
func (s *store) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	first := clientv3.OpGet(nameKey(n.Key), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	answer, err := s.commit(ctx, txn{then: []clientv3.Op{first}})
	if err != nil {
		return nil, err
	}
	q, ok := readQueue(answer.Responses[0].GetResponseRange().Kvs)
	if !ok || len(q) == 0 || q[0].mode != driver.Exclusive || q[0].kept {
		return nil, nil //nolint:nilnil // nobody leads
	}
	left, err := s.left(ctx, q)
	if err != nil {
		return nil, err
	}
	h := holderOf(q[0])
	h.Left = left[q[0].lease]
	return h, nil
}

// scene is a name that is watched for others to see who leads.
type scene struct {
	watch *watch
	bells map[chan struct{}]bool
	ended chan struct{} // with the stream
}

// ring tells that something happened; under mu.
func (sc *scene) ring() {
	for bell := range sc.bells {
		select {
		case bell <- struct{}{}:
		default: // has not looked since the last one
		}
	}
}

var errDeaf = &driver.Failure{Kind: driver.Unavailable, Err: errors.New("etcd: the stream of watches broke")}

// Watch shares one watch of the name's keys with all who watch the name.
func (s *store) Watch(ctx context.Context, n driver.Name, changed func()) error {
	b, bell := &s.book, make(chan struct{}, 1)
	b.mu.Lock()
	sc := b.scenes[n.Key]
	if sc == nil {
		sc = &scene{bells: map[chan struct{}]bool{}, ended: make(chan struct{})}
		b.scenes[n.Key] = sc
		sc.watch = s.ears.watchName(sc, nameKey(n.Key))
	}
	if sc.bells[bell] = true; sc.watch.since > 0 {
		bell <- struct{}{}
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(sc.bells, bell); len(sc.bells) == 0 && b.scenes[n.Key] == sc {
			s.ears.unwatch(sc.watch)
			delete(b.scenes, n.Key)
		}
	}()
	for {
		select {
		case <-bell:
			changed()
		case <-ctx.Done():
			return ctx.Err()
		case <-sc.ended:
			return errDeaf
		case <-s.life.Done():
			return errDeaf
		}
	}
}
