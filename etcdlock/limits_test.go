package etcdlock

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// However many ask at once, no transaction is larger than the server takes: than the
// 128 operations of its default, and than what an administrator allows.
func TestMoreAtOnceThanATransactionTakes(t *testing.T) {
	t.Parallel()
	for _, most := range []int{128, 12} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			t.Parallel()
			server := ownServer(t, fmt.Sprintf("--max-txn-ops=%d", most))
			manyCalls(t, server)
			manyInOneCall(t, server)
			manyMixed(t, server)
		})
	}
}

// manyCalls has as many goroutines hold, and then wait for, a name each.
func manyCalls(t *testing.T, server cluster) {
	t.Helper()
	const many = 500
	a, b := clientAt(t, server.URL()), clientAt(t, server.URL())
	leases := make([]*holdfast.Lease, many)
	var wg sync.WaitGroup
	all := func(c *holdfast.Client) {
		for i := range leases {
			wg.Go(func() {
				lease, err := c.Acquire(t.Context(), fmt.Sprint(t.Name(), i), nil)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				leases[i] = lease
			})
		}
	}
	all(a)
	wg.Wait()
	held := append([]*holdfast.Lease(nil), leases...)
	all(b)
	s := server.open(t)
	until(t, "all wait", func() bool {
		waiting := 0
		for r, err := range s.List(t.Context(), "") {
			if err == nil {
				waiting += len(r.Waiters)
			}
		}
		return waiting == many
	})
	for _, lease := range held {
		wg.Go(func() {
			if lease == nil {
				return
			}
			if err := lease.Renew(t.Context(), time.Minute); err != nil {
				t.Errorf("renewal: %v", err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
	for _, lease := range leases {
		if lease != nil {
			wg.Go(func() { _ = lease.Release(t.Context()) })
		}
	}
	wg.Wait()
}

// manyInOneCall asks for as much as one call of the store may.
func manyInOneCall(t *testing.T, server cluster) {
	t.Helper()
	s, other := server.open(t), server.open(t)
	reqs := holdMany(t, s, maxBatch)
	refs := make([]driver.Ref, len(reqs))
	for i := range reqs {
		refs[i] = reqs[i].Ref
	}
	for _, of := range []*store{s, other} { // who knows them, and who does not
		for _, res := range of.Renew(t.Context(), reqs) {
			if res.Err != nil || res.Status != driver.Renewed {
				t.Fatalf("renewal: %+v", res)
			}
		}
	}
	places := make([]driver.Ref, len(reqs))
	for i := range places {
		places[i] = enqueue(t, other, reqs[i].Name.Full)
	}
	for _, res := range other.Beat(t.Context(), places) { // no watch stands yet
		if res.Err != nil || res.Status != driver.Waiting {
			t.Fatalf("beat: %+v", res)
		}
	}
	for _, of := range []struct {
		s    *store
		refs []driver.Ref
	}{{s, refs}, {other, places}} {
		ends := make([]*driver.ReleaseRequest, len(of.refs))
		for i := range ends {
			ends[i] = &driver.ReleaseRequest{Ref: of.refs[i]}
		}
		for _, done := range of.s.ReleaseMany(t.Context(), ends) {
			if done.Err != nil || !done.Released {
				t.Fatalf("release: %+v", done)
			}
		}
	}
}

// manyMixed has attempts, releases and abandons of what is not there in one call.
func manyMixed(t *testing.T, server cluster) {
	t.Helper()
	s := server.open(t)
	var reqs []*driver.AcquireRequest
	var ends []*driver.ReleaseRequest
	for i := range maxBatch / 2 {
		reqs = append(reqs, request(fmt.Sprint(t.Name(), "/new", i)))
		old := request(fmt.Sprint(t.Name(), "/old", i))
		end := &driver.ReleaseRequest{Ref: refOf(old, 0), Abandon: i%2 == 1}
		if !end.Abandon {
			end.Ref, _ = ask(t, s, old)
		}
		ends = append(ends, end)
	}
	acquired, released := s.Mix(t.Context(), reqs, ends)
	for i := range reqs {
		if acquired[i].Status != driver.Granted || released[i].Err != nil || released[i].Released == ends[i].Abandon {
			t.Fatalf("%+v, %+v", acquired[i], released[i])
		}
		free(t, s, refOf(reqs[i], acquired[i].Grant.Token))
	}
}
