package redislock

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// followers are the replicas of a master.
func followers(r *redistest.Replicated) (all []*redistest.Server) {
	master := r.Master()
	for _, s := range r.Servers {
		if s != master {
			all = append(all, s)
		}
	}
	return all
}

// With Options.Wait nothing counts that too few replicas have: a grant is given
// back, a renewal and a grant by hand-over are errors.
func TestWaitForReplicas(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	s, plain := openAt(t, r.URL()+"?wait=2"), openAt(t, r.URL())
	if p := s.Properties(); p.Class != driver.ClassD {
		t.Errorf("class %v", p.Class)
	}
	ref, place := hold(t, s, "held"), enqueue(t, s, "held")
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]; res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	free(t, s, ref)
	if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Granted {
		t.Errorf("beat: %+v", res)
	}
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: place, TTL: time.Hour}})[0]; res.Status != driver.Renewed {
		t.Errorf("the claim: %+v", res)
	}
	next := enqueue(t, s, "held")

	deaf := followers(r)[0]
	deaf.Signal(syscall.SIGSTOP)
	defer deaf.Signal(syscall.SIGCONT)
	unconfirmed := func(what string, err error) {
		t.Helper()
		if err == nil || s.Classify(err) != driver.Unavailable || !strings.Contains(err.Error(), "1 of 2 replicas") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Acquire(t.Context(), request("new"))
	unconfirmed("attempt", err)
	free(t, plain, hold(t, plain, "new"))
	unconfirmed("renewal", s.Renew(t.Context(), []driver.RenewRequest{{Ref: place, TTL: 2 * time.Hour}})[0].Err)
	free(t, s, place)
	unconfirmed("hand-over", s.Beat(t.Context(), []driver.Ref{next})[0].Err)
	free(t, plain, hold(t, plain, "held"))
	deaf.Signal(syscall.SIGCONT)
	until(t, "both follow again", func() bool {
		res, err := s.Acquire(t.Context(), request("new"))
		return err == nil && res.Status == driver.Granted
	})
}

// Who waits gets the name also if it was handed over; who asks a server without
// replicas is told why it cannot be.
func TestWaitForReplicasInTheClient(t *testing.T) {
	t.Parallel()
	for _, url := range []string{ownReplicated(t).URL() + "?wait=1", ownCluster(t, redistest.Default, true).URL() + "?wait=1"} {
		locks, err := holdfast.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		other, err := holdfast.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			lease, err := locks.Acquire(t.Context(), t.Name(), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error)
			go func() {
				next, err := other.Acquire(t.Context(), t.Name(), nil)
				if err == nil {
					err = next.Release(t.Context())
				}
				got <- err
			}()
			until(t, "one waits", func() bool {
				r, err := locks.Inspect(t.Context(), t.Name())
				return err == nil && len(r.Waiters) == 1
			})
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(locks.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	}
	alone, err := holdfast.Open(t.Context(), sharedServer(t).url()+"?wait=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = alone.Close() })
	if _, err := alone.TryAcquire(t.Context(), t.Name(), nil); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("without a replica: %v", err)
	}
}

// A failover during the wait for replicas is no worse than without.
func TestWaitAcrossFailovers(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	survives(t, r.URL()+"?wait=1", func() {
		if err := r.Failover(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaitWhileASlotMoves(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, redistest.Default, true)
	survives(t, c.URL()+"?wait=1", func() {
		m, err := c.BeginMove(recordKey(tagOf(":"+t.Name()), ":"+t.Name()))
		if err == nil {
			err = m.Keys()
		}
		if err == nil {
			err = m.End()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// What a replica has not got does not count later either, though the later request changes
// nothing; it counts when the replica has it. A value is confirmed as a grant is.
func TestWaitForWhatWasWrittenBefore(t *testing.T) {
	t.Parallel()
	for _, v := range []redistest.Version{redistest.Default, redistest.Redis62, redistest.Valkey91} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			url, replica := ownPair(t, v)
			s, fresh := openAt(t, url), openAt(t, url) // whose connection has written nothing
			ref := hold(t, s, t.Name())
			set := func(seq uint64) error {
				held, err := s.SetValue(t.Context(), &driver.ValueRequest{Ref: ref, Seq: seq, Value: "v"})
				if !held {
					t.Error("it is not held")
				}
				return err
			}
			renew := func(s *store, ttl time.Duration) error {
				res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: ttl}})[0]
				if res.Err == nil && res.Status != driver.Renewed {
					t.Errorf("%+v", res)
				}
				return res.Err
			}
			if err := errors.Join(set(1), renew(s, time.Hour), renew(s, 0)); err != nil {
				t.Fatal(err)
			}
			replica.Signal(syscall.SIGSTOP)
			defer replica.Signal(syscall.SIGCONT)
			for range 2 {
				if err := set(2); err == nil || s.Classify(err) != driver.Indeterminate || !strings.Contains(err.Error(), "0 of 1 replicas") {
					t.Errorf("a value: %v", err)
				}
				if err := renew(s, 2*time.Hour); err == nil || s.Classify(err) != driver.Unavailable {
					t.Errorf("a renewal: %v", err)
				}
				if err := renew(fresh, 0); err == nil || s.Classify(err) != driver.Unavailable {
					t.Errorf("a look: %v", err)
				}
			}
			replica.Signal(syscall.SIGCONT)
			until(t, "the replica has it", func() bool { return errors.Join(set(2), renew(fresh, 0)) == nil })
		})
	}
}

// ownPair is a master with a replica, and the URL by which that has to acknowledge.
func ownPair(tb testing.TB, v redistest.Version) (url string, replica *redistest.Server) {
	tb.Helper()
	master := versionServer(tb, v, "--repl-diskless-sync-delay", "0")
	replica, err := redistest.StartReplica(v, master.Server)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(replica.Remove)
	return master.url() + "?wait=1", replica
}
