package redislock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A request for a place that arrives after its abandon is refused, though the
// server is not asked about that where a free name is taken.
func TestLatePlaceIsRefused(t *testing.T) {
	t.Parallel()
	s := sharedServer(t).open(t)
	held := hold(t, s, t.Name())
	req := request(t.Name())
	req.Queue = true
	ref, status := ask(t, s, req)
	if status != driver.Waiting {
		t.Fatalf("status %d", status)
	}
	if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref, Abandon: true}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, status := ask(t, s, req); status != driver.Gone {
		t.Errorf("late: status %d, want gone", status)
	}
	if res := s.Beat(t.Context(), []driver.Ref{ref})[0]; res.Status != driver.Gone {
		t.Errorf("beat: %+v", res)
	}
	free(t, s, held)
}
