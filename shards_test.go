package holdfast_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// sharded is a store on several nodes. It refuses batches that mix them, and
// one of them may hang.
type sharded struct {
	*spy
	tb    testing.TB
	hangs string // a name whose shard does
	calls times
}

const nodes = 4

func (s *sharded) Shard(r driver.Ref) int {
	n, _ := strconv.Atoi(r.Name.Full)
	return n % nodes
}

func (s *sharded) visit(ctx context.Context, what string, refs []driver.Ref) error {
	time.Sleep(time.Millisecond) // a round trip
	for _, r := range refs {
		if s.Shard(r) != s.Shard(refs[0]) {
			s.tb.Errorf("%s of shards %d and %d in one batch", what, s.Shard(r), s.Shard(refs[0]))
		}
	}
	if s.hangs != "" && s.Shard(refs[0]) == s.Shard(driver.Ref{Name: driver.Name{Full: s.hangs}}) {
		<-ctx.Done()
		return torn()
	}
	return nil
}

func (s *sharded) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	a := s.AcquireMany(ctx, []*driver.AcquireRequest{req})[0]
	return a.AcquireResult, a.Err
}

func (s *sharded) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	s.calls.note()
	refs := make([]driver.Ref, len(reqs))
	for i, r := range reqs {
		refs[i].Name = r.Name
	}
	if err := s.visit(ctx, "acquires", refs); err != nil {
		answers := make([]driver.AcquireAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	}
	return s.spy.AcquireMany(ctx, reqs)
}

func (s *sharded) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	refs := make([]driver.Ref, len(reqs))
	for i, r := range reqs {
		refs[i] = r.Ref
	}
	if err := s.visit(ctx, "releases", refs); err != nil {
		answers := make([]driver.ReleaseAnswer, len(reqs))
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	}
	return s.spy.ReleaseMany(ctx, reqs)
}

func (s *sharded) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	refs := make([]driver.Ref, len(reqs))
	for i, r := range reqs {
		refs[i] = r.Ref
	}
	if err := s.visit(ctx, "renewals", refs); err != nil {
		results := make([]driver.RenewResult, len(reqs))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	return s.spy.Renew(ctx, reqs)
}

func (s *sharded) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	if err := s.visit(ctx, "beats", places); err != nil {
		results := make([]driver.BeatResult, len(places))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	return s.spy.Beat(ctx, places)
}

func newSharded(tb testing.TB, server *memlock.Server) *sharded {
	tb.Helper()
	s := &sharded{spy: newSpy(tb, server), tb: tb}
	s.remote = true
	return s
}

// takeMany acquires the names 0 to n-1 at once.
func takeMany(tb testing.TB, c *holdfast.Client, n int, o *holdfast.AcquireOptions) []*holdfast.Lease {
	tb.Helper()
	leases := make([]*holdfast.Lease, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			l, err := c.Acquire(tb.Context(), strconv.Itoa(i), o)
			if err != nil {
				tb.Error(err)
				return
			}
			leases[i] = l
		})
	}
	all.Wait()
	return leases
}

// No batch mixes shards: neither of attempts, renewals, beats nor releases.
func TestBatchesDoNotMixShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSharded(t, server)
		other := newSharded(t, server)
		leases := takeMany(t, open(t, s, nil), 200, nil)
		if n := len(s.calls.pauses()); n > 60 {
			t.Errorf("%d exchanges for 200 acquires", n)
		}
		c := open(t, other, nil)
		var outs []<-chan outcome
		for i := range leases {
			outs = append(outs, later(t.Context(), c, strconv.Itoa(i), nil))
		}
		time.Sleep(time.Minute)
		if s.renews.Load() == 0 || other.beats.Load() == 0 {
			t.Fatal("nothing was renewed, or no place beaten")
		}
		var all sync.WaitGroup
		for _, l := range leases {
			all.Go(func() { give(t, l) })
		}
		all.Wait()
		for _, out := range outs {
			l := (<-out).lease
			all.Go(func() { give(t, l) })
		}
		all.Wait()
	})
}

// A shard that hangs delays no other: neither leases nor attempts nor places.
func TestHungShardDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		other := newSpy(t, server).client(t)
		held := take(t, other, "1002", nil)
		s := newSharded(t, server)
		s.hangs = "3"
		c := open(t, s, nil)
		for i := range 50 {
			later(t.Context(), c, strconv.Itoa(3+nodes*i), &holdfast.AcquireOptions{Wait: 2 * time.Minute})
		}
		waits := later(t.Context(), c, "1002", nil)
		var leases []*holdfast.Lease
		for i := range 50 {
			start := time.Now()
			leases = append(leases, take(t, c, strconv.Itoa(nodes*i), nil))
			if took := time.Since(start); took > time.Millisecond {
				t.Fatalf("an acquire on another shard took %v", took)
			}
		}
		time.Sleep(2 * time.Minute)
		start := time.Now()
		give(t, held)
		got := <-waits
		if took := got.at.Sub(start); took > 5*time.Millisecond {
			t.Errorf("a place on another shard was granted after %v", took)
		}
		give(t, got.lease)
		for _, l := range leases {
			start := time.Now()
			if valid := l.Valid(); !valid {
				t.Error("a lease on another shard was lost")
			}
			give(t, l)
			if took := time.Since(start); took > time.Millisecond {
				t.Errorf("a release on another shard took %v", took)
			}
		}
	})
}
