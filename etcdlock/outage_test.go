package etcdlock

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/etcdtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func clientAt(tb testing.TB, url string) *holdfast.Client {
	tb.Helper()
	c, err := holdfast.Open(tb.Context(), url, &holdfast.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	addr := testserver.Addr(testserver.FreePort())
	if _, err := openURL(t.Context(), "etcd://"+addr); err == nil || classify(err) != driver.Unavailable {
		t.Errorf("%v", err)
	}
}

// A server that is killed is unavailable, and its locks come back with its
// data, the places too.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	var h heard
	h.listen(s)
	ref, place := hold(t, s, "name"), enqueue(t, s, "name")
	quiet(t, s) // else nothing can be missed
	server.Kill()
	until(t, "the outage is told", func() bool {
		_, err := s.Acquire(t.Context(), request("other"))
		return err != nil && s.Classify(err) == driver.Unavailable
	})
	if err := renew(t, s, ref, time.Hour).Err; err == nil || s.Classify(err) != driver.Unavailable {
		t.Errorf("renew: %v", err)
	}
	until(t, "a beat is refused", func() bool { // first it may say what was known before
		err := s.Beat(t.Context(), []driver.Ref{place})[0].Err
		return err != nil && s.Classify(err) == driver.Unavailable
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "signals were missed", func() bool { return h.has(driver.MissedSignal, driver.Owner{}) })
	res := retry(t, s, func() (driver.RenewResult, error) {
		res := renew(t, s, ref, time.Minute)
		return res, res.Err
	})
	if res.Status != driver.Renewed {
		t.Errorf("after the restart: %+v", res)
	}
	if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Waiting {
		t.Errorf("beat after the restart: %+v", res)
	}
	free(t, s, ref)
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
}

// leader finds the node that leads.
func (c cluster) leader(tb testing.TB) (leader *etcdtest.Node) {
	tb.Helper()
	api := c.api(tb)
	until(tb, "a leader", func() bool {
		for _, n := range c.Nodes {
			ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
			status, err := api.Status(ctx, "http://"+n.Addr)
			cancel()
			if err == nil && status.Header.MemberId == status.Leader {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// What happens to the leader of three is seen by nobody but as a delay: holders
// keep what they hold, waiters their places, and the next gets its turn.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*etcdtest.Node) (undo func()){
		"killed": func(n *etcdtest.Node) func() {
			n.Kill()
			return func() {}
		},
		"stopped": func(n *etcdtest.Node) func() {
			signal(t, n, syscall.SIGSTOP)
			return func() { signal(t, n, syscall.SIGCONT) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := ownCluster(t, etcdtest.Default, 3)
			a, b := clientAt(t, c.URL()), clientAt(t, c.URL())
			lease, err := a.Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Fatal(err)
			}
			won := make(chan *holdfast.Lease, 1)
			go func() {
				next, err := b.Acquire(t.Context(), "name", nil)
				if err != nil {
					t.Error(err)
				}
				won <- next
			}()
			s := c.open(t)
			until(t, "a place", func() bool {
				r, err := s.Inspect(t.Context(), nameOfText("name"))
				return err == nil && len(r.Waiters) == 1
			})
			undo := lose(c.leader(t))
			defer undo()
			until(t, "a renewal", func() bool { return lease.Renew(t.Context(), 30*time.Second) == nil })
			other, err := b.Acquire(t.Context(), "other", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = other.Release(t.Context())
			select {
			case <-won:
				t.Error("two hold the name")
			default:
			}
			_ = lease.Release(t.Context()) // if no server answers it goes on in the background
			next := <-won
			if next == nil || next.Token() <= lease.Token() {
				t.Errorf("the next lease is %v after token %d", next, lease.Token())
				return
			}
			until(t, "a check", func() bool { return next.Check(t.Context()) == nil })
		})
	}
}

// A leader that stood still for longer than a TTL and goes on may end leases that were
// renewed under its successor. That is told at once, and the next token is larger.
func TestLeaderGoesOn(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, etcdtest.Default, 3)
	leader := c.leader(t)
	var others cluster
	others.Cluster = &etcdtest.Cluster{}
	for _, n := range c.Nodes {
		if n != leader {
			others.Nodes = append(others.Nodes, n)
		}
	}
	s, next := others.open(t), others.open(t)
	var h heard
	h.listen(s)
	req := request("name")
	req.TTL = 2 * time.Second
	ref := storetest.Want(t, s, req, driver.Granted)
	signal(t, leader, syscall.SIGSTOP)
	renewed := func() driver.RenewStatus {
		return retry(t, s, func() (driver.RenewStatus, error) {
			res := renew(t, s, ref, req.TTL)
			return res.Status, res.Err
		})
	}
	for end := time.Now().Add(2 * req.TTL); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if renewed() == driver.Lost {
			t.Log("the others were without a leader for too long")
			return
		}
	}
	signal(t, leader, syscall.SIGCONT)
	until(t, "it follows", func() bool { now := c.leader(t); return now != leader })
	for range 20 {
		if renewed() == driver.Lost {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	if renewed() == driver.Renewed {
		free(t, s, ref)
		return
	}
	t.Log("the lease was ended under its holder")
	until(t, "the loss is told", func() bool { return h.has(driver.LostSignal, ref.Owner) })
	if won := hold(t, next, "name"); won.Token <= ref.Token {
		t.Errorf("token %d after %d", won.Token, ref.Token)
	}
}

// One of three is not needed; without two nothing is granted, and what was held
// is held again when they are back.
func TestMembersDown(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, etcdtest.Default, 3)
	s := c.open(t)
	ref := hold(t, s, "name")
	c.Nodes[0].Kill()
	retry(t, s, func() (bool, error) {
		res, err := s.Acquire(t.Context(), request("one is down"))
		return res.Status == driver.Granted, err
	})
	c.Nodes[1].Kill()
	until(t, "nothing is granted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := s.Acquire(ctx, request(fmt.Sprint("two are down", rand.Int())))
		return err != nil
	})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	res := retry(t, s, func() (driver.RenewResult, error) {
		res := renew(t, s, ref, time.Minute)
		return res, res.Err
	})
	if res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	if retry(t, s, func() (driver.Status, error) {
		res, err := s.Acquire(t.Context(), request("name"))
		return res.Status, err
	}) != driver.Held {
		t.Error("two hold the name")
	}
}

// revoke ends the lease on which an owner's key hangs.
func revoke(tb testing.TB, api *clientv3.Client, ref driver.Ref) {
	tb.Helper()
	p := placeOf(tb, api, ref)
	if p == nil {
		tb.Fatal("no key")
	}
	if _, err := api.Revoke(tb.Context(), p.lease); err != nil {
		tb.Fatal(err)
	}
}

// placeOf reads an owner's key.
func placeOf(tb testing.TB, api *clientv3.Client, ref driver.Ref) *place {
	tb.Helper()
	answer, err := api.Get(tb.Context(), kindKey(ref.Name.Key, ref.Mode), clientv3.WithPrefix())
	if err != nil {
		tb.Fatal(err)
	}
	return findOwner(answer.Kvs, &ref.Owner)
}

// deleteKey deletes an owner's key.
func deleteKey(tb testing.TB, api *clientv3.Client, ref driver.Ref) {
	tb.Helper()
	if p := placeOf(tb, api, ref); p != nil {
		if _, err := api.Delete(tb.Context(), p.key); err != nil {
			tb.Error(err)
		}
	}
}

// A hold whose lease is revoked, whose key is deleted, or that another process has released
// by its handle and keeps taken for a while, is lost at once.
func TestHoldEndedInTheCluster(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	api := server.api(t)
	other := server.open(t)
	kept := func(tb testing.TB, _ *clientv3.Client, ref driver.Ref) {
		tb.Helper()
		if ok, err := other.Release(tb.Context(), &driver.ReleaseRequest{Ref: ref, Keep: time.Minute}); !ok || err != nil {
			tb.Errorf("released: %t, %v", ok, err)
		}
	}
	for what, end := range map[string]func(testing.TB, *clientv3.Client, driver.Ref){"revoked": revoke, "deleted": deleteKey, "kept": kept} {
		s := server.open(t)
		var h heard
		h.listen(s)
		ref := hold(t, s, what)
		renew(t, s, ref, time.Minute) // begins the watch
		quiet(t, s)
		until(t, "the watch stands", func() bool {
			s.book.mu.Lock()
			defer s.book.mu.Unlock()
			return s.book.entries[ref.Owner].own.since > 0
		})
		end(t, api, ref)
		until(t, what+" is told", func() bool { return h.has(driver.LostSignal, ref.Owner) })
		if res := renew(t, s, ref, time.Minute); res.Status != driver.Lost {
			t.Errorf("renewal: %+v", res)
		}
		if what != "kept" {
			free(t, s, hold(t, s, what))
		}
	}
}

// Reports B070, B069: a waiter whose lease or entry ends hears of it within
// moments, has none any more, and is not granted by it.
func TestPlaceEndedInTheCluster(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	api, holder := server.api(t), server.open(t)
	other := server.open(t)
	kept := func(tb testing.TB, _ *clientv3.Client, ref driver.Ref) {
		tb.Helper()
		if ok, err := other.Release(tb.Context(), &driver.ReleaseRequest{Ref: ref, Keep: time.Minute}); !ok || err != nil {
			tb.Errorf("released: %t, %v", ok, err)
		}
	}
	for what, end := range map[string]func(testing.TB, *clientv3.Client, driver.Ref){"revoked": revoke, "deleted": deleteKey, "kept": kept} {
		s := server.open(t)
		var h heard
		h.listen(s)
		ref, place := hold(t, holder, what), enqueue(t, s, what)
		quiet(t, s)
		end(t, api, place)
		until(t, what+" is told", func() bool { return h.has(driver.MissedSignal, driver.Owner{}) })
		if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Gone {
			t.Errorf("beat: %+v", res)
		}
		free(t, holder, ref)
		free(t, holder, hold(t, holder, what))
		if h.has(driver.GrantSignal, place.Owner) {
			t.Errorf("a place that was %s is granted", what)
		}
	}
}

// Report B069: the lease of a waiter lives while it waits, however long the
// holder keeps the name.
func TestLongWait(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b, c := clientAt(t, server.URL()), clientAt(t, server.URL()), clientAt(t, server.URL())
	lease, err := a.Acquire(t.Context(), t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan *holdfast.Lease, 1)
	go func() {
		next, err := b.Acquire(t.Context(), t.Name(), &holdfast.AcquireOptions{TTL: time.Second})
		if err != nil {
			t.Error(err)
		}
		won <- next
	}()
	<-time.After(10 * time.Second) // longer than its place lives without a word
	s := server.open(t)
	if r, err := s.Inspect(t.Context(), nameOfText(t.Name())); err != nil || len(r.Waiters) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := <-won
	if _, err := c.TryAcquire(t.Context(), t.Name(), nil); err == nil {
		t.Error("a second holder")
	}
	if next != nil {
		_ = next.Release(t.Context())
	}
}

// Report B072: a queued writer whose lease is revoked, or whose entry is deleted,
// around the moment of the release is never granted.
func TestRevokedAtTheReleaseOfTheOneBefore(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	api, m1, m2, m3 := server.api(t), server.open(t), server.open(t), server.open(t)
	var h2, h3 heard
	h2.listen(m2)
	h3.listen(m3)
	for i := range 200 {
		ref := hold(t, m1, "name")
		second := enqueue(t, m2, "name")
		third := enqueue(t, m3, "name")
		if i%3 > 0 {
			quiet(t, m2, m3)
		}
		ended, key := make(chan struct{}), placeOf(t, api, second).key
		go func() {
			defer close(ended)
			<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
			if _, err := api.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
		}()
		<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
		free(t, m1, ref)
		<-ended
		until(t, "the third is granted", func() bool { return h3.has(driver.GrantSignal, third.Owner) })
		if sig, ok := h2.grant(second.Owner); ok {
			// It was granted before it was ended: that it has lost the hold it is told.
			second.Token = sig.Grant.Token
			if res := renew(t, m2, second, time.Minute); res.Status != driver.Lost {
				t.Fatalf("renewal: %+v", res)
			}
			if third3, _ := h3.grant(third.Owner); third3.Grant.Token <= sig.Grant.Token {
				t.Fatal("tokens do not grow")
			}
		}
		sig, _ := h3.grant(third.Owner)
		third.Token = sig.Grant.Token
		free(t, m3, third)
	}
}

// A server that is behind tells of the end of what was under a key before: that is
// the end of nothing that is there now.
func TestEventsOfFormerUse(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	holder, s := server.open(t), server.open(t)
	var h heard
	h.listen(s)
	ref, place := hold(t, holder, t.Name()), enqueue(t, s, t.Name())
	quiet(t, s)
	s.book.mu.Lock()
	e := s.book.entries[place.Owner]
	for _, w := range []*watch{e.own, e.before[0].watch} {
		former := &mvccpb.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{ModRevision: w.generation() - 1}}
		if signals := s.book.happened(w, former); len(signals) > 0 {
			t.Errorf("%+v", signals)
		}
	}
	s.book.mu.Unlock()
	if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Waiting {
		t.Errorf("beat: %+v", res)
	}
	free(t, holder, ref)
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	free(t, s, place)
}

// The middle one of three dies while the holder lives: that is no grant for the
// one behind it.
func TestMiddleWaiterDies(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	api, s, middle, last := server.api(t), server.open(t), server.open(t), server.open(t)
	var h heard
	h.listen(last)
	for _, end := range []func(testing.TB, *clientv3.Client, driver.Ref){revoke, deleteKey, func(testing.TB, *clientv3.Client, driver.Ref) {}} {
		ref := hold(t, s, "name")
		first, second := enqueue(t, middle, "name"), enqueue(t, middle, "name")
		place := enqueue(t, last, "name")
		quiet(t, last)
		end(t, api, second) // and with a lease both
		if _, err := middle.Release(t.Context(), &driver.ReleaseRequest{Ref: second, Abandon: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := middle.Release(t.Context(), &driver.ReleaseRequest{Ref: first, Abandon: true}); err != nil {
			t.Fatal(err)
		}
		until(t, "the last knows that it is next", func() bool {
			last.book.mu.Lock()
			defer last.book.mu.Unlock()
			e := last.book.entries[place.Owner]
			return e == nil || e.held || e.live() && e.all && len(e.before) == 1
		})
		if res := last.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Waiting || h.has(driver.GrantSignal, place.Owner) {
			t.Fatalf("%+v", res)
		}
		free(t, s, ref)
		until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
		free(t, last, place)
	}
}

// Of 1,000 waiters 900 die: the first that lives is served, and nobody waits for
// one dead after the other.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, dying, living := server.open(t), server.open(t), server.open(t)
	var h heard
	h.listen(living)
	ref := hold(t, s, "name")
	for range 900 {
		enqueue(t, dying, "name")
	}
	places := make([]driver.Ref, 100)
	for i := range places {
		places[i] = enqueue(t, living, "name")
		if i%20 == 0 {
			living.Beat(t.Context(), places[:i+1])
		}
	}
	if err := dying.Close(); err != nil { // nobody keeps its places alive now
		t.Fatal(err)
	}
	free(t, s, ref)
	begin := time.Now()
	until(t, "the first that lives is told", func() bool {
		living.Beat(t.Context(), places)
		return h.has(driver.GrantSignal, places[0].Owner)
	})
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("it took %v", took)
	}
	if r, err := s.Inspect(t.Context(), nameOfText("name")); err != nil || len(r.Holders) != 1 || len(r.Waiters) != 99 {
		t.Errorf("%d holders, %d waiters, %v", len(r.Holders), len(r.Waiters), err)
	}
}

// Who dies right after a hand-over, before the grant is claimed, keeps the name
// about as long as its TTL, and a dead waiter no longer than the claim window and
// some seconds.
func TestDeadBeforeTheClaim(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	api, s, next := server.api(t), server.open(t), server.open(t)
	var after heard
	after.listen(next)
	for ttl, want := range map[time.Duration]int64{time.Second: 2, 2 * time.Second: 3, 5 * time.Second: 5, time.Minute: 8} {
		dying := server.open(t)
		var h heard
		h.listen(dying)
		name := fmt.Sprint(t.Name(), ttl)
		ref, req := hold(t, s, name), request(name)
		req.Queue, req.TTL, req.Claim = true, ttl, min(ttl, req.Claim)
		place, _ := ask(t, dying, req)
		third := enqueue(t, next, name)
		quiet(t, dying, next)
		free(t, s, ref)
		until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
		p := placeOf(t, api, place)
		if p == nil {
			t.Fatal("the machine was too slow for its own leases")
		}
		if l, err := api.TimeToLive(t.Context(), p.lease); err != nil || l.GrantedTTL != want {
			t.Errorf("with a TTL of %v it keeps the name for %+v, %v", ttl, l, err)
		}
		must(t, dying.Close()) // nobody keeps its lease alive now
		until(t, "the next is told", func() bool {
			next.Beat(t.Context(), []driver.Ref{third})
			return after.has(driver.GrantSignal, third.Owner)
		})
		free(t, next, third)
	}
}

// Report B144: compaction, cut connections and cancelled waits leave no entry
// behind that blocks the others, and no watch that is deaf.
func TestCompactionAndCutsUnderAWatch(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	api := server.api(t)
	p := newProxy(t, server.Nodes[0].Addr)
	s, cut := server.open(t), openAt(t, p.url())
	var h heard
	h.listen(cut)
	for i := range 20 {
		ref, place := hold(t, s, "name"), enqueue(t, cut, "name")
		answer, err := api.Put(t.Context(), "something", strings.Repeat("x", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Compact(t.Context(), answer.Header.Revision); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			missed := h.missed()
			p.cut()
			free(t, s, ref)
			if _, err := api.Compact(t.Context(), answer.Header.Revision+1); err != nil {
				t.Fatal(err)
			}
			// Until the client notices the cut, a beat may say what it knew before.
			until(t, "the grant or the cut is told", func() bool {
				return h.has(driver.GrantSignal, place.Owner) || h.missed() > missed
			})
			res := retry(t, cut, func() (driver.BeatResult, error) {
				res := cut.Beat(t.Context(), []driver.Ref{place})[0]
				return res, res.Err
			})
			if res.Status != driver.Granted {
				t.Fatalf("beat: %+v", res)
			}
		} else {
			free(t, s, ref)
			until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
		}
		if !retry(t, cut, func() (bool, error) { return cut.Release(t.Context(), &driver.ReleaseRequest{Ref: place}) }) && i%2 == 1 {
			t.Fatal("not released")
		}
	}
}

// Report B076: when all leases are gone the holds are lost, and the same client
// acquires again, ten times in a row.
func TestAllLeasesRevoked(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	api, s := server.api(t), server.open(t)
	for range 10 {
		ref := hold(t, s, "name")
		leases, err := api.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases.Leases {
			_, _ = api.Revoke(t.Context(), l.ID) // it may have run out
		}
		if res := renew(t, s, ref, time.Minute); res.Status != driver.Lost {
			t.Errorf("renewal: %+v", res)
		}
		enqueueOrHold(t, s)
	}
}

func enqueueOrHold(tb testing.TB, s *store) {
	tb.Helper()
	ref := hold(tb, s, "name")
	place := enqueue(tb, s, "name")
	free(tb, s, place)
	free(tb, s, ref)
}

// Report B073: a hold whose goroutine has gone ends with MaxHold, with a lease
// that is not renewed, or when its client is closed.
func TestForgottenHold(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	b := clientAt(t, server.URL())
	for what, o := range map[string]*holdfast.AcquireOptions{
		"max hold": {TTL: time.Second, MaxHold: 2 * time.Second}, "no renewal": {TTL: time.Second, NoRenew: true}, "close": {},
	} {
		a := clientAt(t, server.URL())
		busy, err := a.Acquire(t.Context(), t.Name()+"/busy", &holdfast.AcquireOptions{TTL: time.Second}) // keeps the lease alive
		if err != nil {
			t.Fatal(err)
		}
		lease, err := a.Acquire(t.Context(), t.Name()+what, o)
		if err != nil {
			t.Fatal(err)
		}
		if what == "close" {
			_ = a.Close()
		}
		next, err := b.Acquire(t.Context(), t.Name()+what, nil)
		if err != nil {
			t.Fatal(err)
		}
		if lease.Valid() {
			t.Errorf("%s: still valid", what)
		}
		_ = next.Release(t.Context())
		_ = busy.Release(t.Context())
	}
}
