package integration_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/memlock"
)

// mutant is a store with a mistake that real ones have made.
type mutant struct {
	driver.Queuer
	driver.Batcher
	driver.Inspector
	driver.Lister
	driver.Breaker

	inner interface {
		driver.Queuer
		driver.Batcher
	}
	ungated bool // Release does not compare the owner
	dreams  bool // it claims windows twice as long as it grants
}

func (m *mutant) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	answers := m.inner.AcquireMany(ctx, reqs)
	for i := range answers {
		if m.dreams {
			answers[i].Grant.Window *= 2
		}
	}
	return answers
}

func (m *mutant) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	results := m.inner.Renew(ctx, reqs)
	for i := range results {
		if m.dreams {
			results[i].Window *= 2
		}
	}
	return results
}

func (m *mutant) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	if m.ungated {
		for _, req := range reqs {
			record, err := m.Inspect(ctx, req.Name)
			if err != nil {
				continue
			}
			for i := range record.Holders {
				other := *req
				other.Owner, other.Token, other.Abandon = record.Holders[i].Owner, 0, false
				m.inner.ReleaseMany(ctx, []*driver.ReleaseRequest{&other})
			}
		}
	}
	return m.inner.ReleaseMany(ctx, reqs)
}

func mutate(server *memlock.Server, set func(*mutant)) driver.Store {
	store := server.Store()
	m := &mutant{}
	m.Queuer, _ = store.(driver.Queuer)
	m.Batcher, _ = store.(driver.Batcher)
	m.Inspector, _ = store.(driver.Inspector)
	m.Lister, _ = store.(driver.Lister)
	m.Breaker, _ = store.(driver.Breaker)
	m.inner, _ = store.(interface {
		driver.Queuer
		driver.Batcher
	})
	set(m)
	return m
}

// A hunt that finds nothing must be one that could have found something.
func TestSchedulesSeeBrokenStores(t *testing.T) {
	t.Parallel()
	const most = 1000 // one or two in a hundred histories are enough for each
	split := func(*memlock.Server) driver.Store { return memlock.NewServer().Store() }
	for name, open := range map[string]func(*memlock.Server) driver.Store{
		"each client has its own": split,
		"release of any owner":    func(s *memlock.Server) driver.Store { return mutate(s, func(m *mutant) { m.ungated = true }) },
		"windows too long":        func(s *memlock.Server) driver.Store { return mutate(s, func(m *mutant) { m.dreams = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				w := draw(seed)
				w.open = open
				synctest.Test(t, func(*testing.T) { w.run() })
				h, err := history.New(w.rec.Events())
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Beliefs(); err != nil && strings.Contains(err.Error(), "belief:") {
					t.Logf("found in history %d", seed)
					if h.Model(10*time.Second) == nil {
						t.Error("the model did not see it")
					}
					return
				}
			}
			t.Errorf("not found in %d histories", most)
		})
	}
}
