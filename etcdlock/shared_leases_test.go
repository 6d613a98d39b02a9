package etcdlock

import (
	"context"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// When one of a client's leases has ended, what hangs on the others is not lost:
// neither if an attempt for a place finds it out, nor one that travels with others.
func TestOneLeaseEnds(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	other, s, api := server.open(t), server.open(t), server.api(t)
	var says heard
	says.listen(s)
	hold(t, other, "busy")
	ref := hold(t, s, "held")
	free(t, s, enqueue(t, s, "busy"))
	revoke := func(l *lease) {
		t.Helper()
		if _, err := api.Revoke(t.Context(), l.id); err != nil {
			t.Fatal(err)
		}
	}
	revoke(s.pool.at(placeTTL(request(""))))
	enqueue(t, s, "busy")

	short := request("short")
	short.TTL = 20 * time.Second
	brief, _ := ask(t, s, short)
	revoke(s.pool.at(short.TTL))
	again, free := request("again"), request("free")
	again.TTL = short.TTL
	for i, a := range s.AcquireMany(t.Context(), []*driver.AcquireRequest{again, free}) {
		if a.Err != nil || a.Status != driver.Granted {
			t.Errorf("attempt %d: %+v", i, a)
		}
	}
	if res := renew(t, s, ref, time.Minute); res.Status != driver.Renewed {
		t.Errorf("what hangs on another lease: %+v", res)
	}
	if says.has(driver.LostSignal, ref.Owner) {
		t.Error("a hold is told as lost that is not")
	}
	until(t, "what hung on the lease is lost", func() bool { return says.has(driver.LostSignal, brief.Owner) })
	kept, err := api.Get(t.Context(), nameKey(ref.Name.Key), clientv3.WithPrefix())
	if err != nil || kept.Count != 1 {
		t.Errorf("%d keys, %v", kept.Count, err)
	}
}

// A renewal does not rest on watches whose stream does not answer: a server that
// stopped, or was cut off, tells of nothing.
func TestRenewalWithoutWatches(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, api := server.open(t), server.api(t)
	ref := hold(t, s, t.Name())
	until(t, "the hold is watched", func() bool {
		if res := renew(t, s, ref, time.Minute); res.Status != driver.Renewed {
			t.Fatalf("%+v", res)
		}
		s.book.mu.Lock()
		defer s.book.mu.Unlock()
		return s.book.entries[ref.Owner].live()
	})
	s.book.mu.Lock()
	e := s.book.entries[ref.Owner]
	delete(s.ears.watches, e.own.id) // its events are not heard
	cut := s.ears.cut
	s.ears.cut = nil
	s.book.mu.Unlock()
	if _, err := api.Delete(t.Context(), e.key); err != nil {
		t.Fatal(err)
	}
	if res := renew(t, s, ref, time.Minute); res.Status != driver.Lost {
		t.Errorf("a hold that has gone: %+v", res)
	}
	s.book.mu.Lock()
	s.ears.cut = cut
	s.book.mu.Unlock()
}

// Those who wait for one lease do not share the ctx of the first who wanted it.
func TestLeaseOutlivesWhoWantedIt(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	ask := func(ctx context.Context, name string) (answer chan driver.AcquireAnswer) {
		answer = make(chan driver.AcquireAnswer, 1)
		go func() {
			req := request(name)
			req.TTL = 17 * time.Second
			res, err := s.Acquire(ctx, req)
			answer <- driver.AcquireAnswer{AcquireResult: res, Err: err}
		}()
		return answer
	}
	signal(t, server.Nodes[0], syscall.SIGSTOP)
	ctx, cancel := context.WithCancel(t.Context())
	first := ask(ctx, "first")
	until(t, "the lease is asked for", func() bool {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return s.pool.making[17] != nil
	})
	second := ask(t.Context(), "second")
	<-time.After(20 * time.Millisecond) // it may come later: then it has less to prove
	cancel()
	if a := <-first; a.Err == nil {
		t.Errorf("the first: %+v", a)
	}
	signal(t, server.Nodes[0], syscall.SIGCONT)
	if a := <-second; a.Err != nil || a.Status != driver.Granted {
		t.Errorf("the second: %+v", a)
	}
}
