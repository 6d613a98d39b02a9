package etcdlock

import (
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// refOf is the grant that a request got.
func refOf(req *driver.AcquireRequest, token uint64) driver.Ref {
	return driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: token}
}

// What one request of a mixed batch asks spoils none of the others.
func TestMixedBatchesThatAreRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*testing.T, *store, *clientv3.Client) *driver.AcquireRequest{
		"a lease that has ended": func(t *testing.T, s *store, api *clientv3.Client) *driver.AcquireRequest {
			t.Helper()
			req := request(t.Name() + "/late")
			req.TTL = 3 * time.Second
			free(t, s, storetest.Want(t, s, req, driver.Granted))
			if _, err := api.Revoke(t.Context(), s.pool.at(req.TTL).id); err != nil {
				t.Fatal(err)
			}
			again := request(t.Name() + "/late")
			again.TTL = req.TTL
			return again
		},
		"keys that are not ours": func(t *testing.T, _ *store, api *clientv3.Client) *driver.AcquireRequest {
			t.Helper()
			req := request(t.Name() + "/theirs")
			if _, err := api.Put(t.Context(), nameKey(req.Name.Key)+"x", "theirs"); err != nil {
				t.Fatal(err)
			}
			return req
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := ownServer(t)
			s, other, api := server.open(t), server.open(t), server.api(t)
			mine := hold(t, s, t.Name()+"/mine")
			spoiled, fine := spoil(t, s, api), request(t.Name()+"/fine")
			acquired, released := s.Mix(t.Context(), []*driver.AcquireRequest{spoiled, fine}, []*driver.ReleaseRequest{{Ref: mine}})
			if !released[0].Released || released[0].Err != nil || acquired[1].Status != driver.Granted {
				t.Errorf("%+v, %+v", acquired, released)
			}
			free(t, other, hold(t, other, t.Name()+"/mine"))
			if _, status := try(t, other, t.Name()+"/fine"); status != driver.Held {
				t.Errorf("what a mixed batch granted is not held: %d", status)
			}
			free(t, s, refOf(fine, acquired[1].Grant.Token))
		})
	}
}

// A release finds a grant also after its record was changed, by a break or the
// value of a leader, and never what is kept of a grant.
func TestReleaseOfAChangedRecord(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	broken, valued, kept := hold(t, s, t.Name()+"/broken"), hold(t, s, t.Name()+"/valued"), hold(t, s, t.Name()+"/kept")
	if status, err := other.Break(t.Context(), &driver.BreakRequest{Name: broken.Name, Token: broken.Token, Reason: "test"}); status != driver.Marked || err != nil {
		t.Fatalf("break: %d, %v", status, err)
	}
	if ok, err := s.SetValue(t.Context(), &driver.ValueRequest{Ref: valued, Value: "here", Seq: 1}); !ok || err != nil {
		t.Fatalf("value: %t, %v", ok, err)
	}
	if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: kept, Keep: time.Minute}); !ok || err != nil {
		t.Fatalf("release that keeps: %t, %v", ok, err)
	}
	_, released := s.Mix(t.Context(), []*driver.AcquireRequest{request(t.Name())}, []*driver.ReleaseRequest{{Ref: broken}, {Ref: valued}, {Ref: kept}})
	if !released[0].Released || !released[1].Released || released[2].Released {
		t.Errorf("%+v, want true, true, false", released)
	}
	free(t, other, hold(t, other, t.Name()+"/broken"))
	free(t, other, hold(t, other, t.Name()+"/valued"))
	if _, status := try(t, other, t.Name()+"/kept"); status != driver.Held {
		t.Errorf("what is kept: %d", status)
	}
}

// handedOver is a place of s that became a hold, and was renewed since: its record was
// written again.
func handedOver(t *testing.T, s, other *store, name string) driver.Ref {
	t.Helper()
	var h heard
	h.listen(s)
	first := hold(t, other, name)
	place := enqueue(t, s, name)
	quiet(t, s)
	free(t, other, first)
	until(t, "the place is granted", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	sig, _ := h.grant(place.Owner)
	place.Token = sig.Grant.Token
	if res := renew(t, s, place, time.Minute); res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	return place
}

// Whatever a release is of, a mixed batch ends exactly that, and leaves nothing in
// the book.
func TestMixedReleasesOfAllKinds(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	at := func(what string) string { return t.Name() + "/" + what }
	handed := handedOver(t, s, other, at("handed"))
	labelled := hold(t, s, at("labelled"))
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: labelled, TTL: 30 * time.Second, Label: "the heir"}})[0]; res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	detached := hold(t, s, at("detached"))
	if res := s.Detach(t.Context(), driver.RenewRequest{Ref: detached, TTL: time.Minute}); res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	if res := renew(t, other, detached, time.Minute); res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	taken := hold(t, other, at("place"))
	place := enqueue(t, s, at("place"))
	stale := hold(t, s, at("stale"))
	older := stale
	older.Token--
	byOwner := hold(t, s, at("owner"))
	byOwner.Token = 0
	gone := hold(t, s, at("gone"))
	if status, err := other.Break(t.Context(), &driver.BreakRequest{Name: gone.Name, Token: gone.Token, Force: true}); status != driver.Freed || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	next := hold(t, other, at("gone"))
	refs := []driver.Ref{handed, labelled, detached, place, older, byOwner, gone}
	want := []bool{true, true, true, true, false, true, false}
	ends := make([]*driver.ReleaseRequest, len(refs))
	for i, ref := range refs {
		ends[i] = &driver.ReleaseRequest{Ref: ref}
	}
	req := request(at("new"))
	acquired, released := s.Mix(t.Context(), []*driver.AcquireRequest{req}, ends)
	for i, a := range released {
		if a.Err != nil || a.Released != want[i] {
			t.Errorf("%s: %+v, want %t", refs[i].Name.Full, a, want[i])
		}
	}
	for _, ref := range []driver.Ref{stale, refOf(req, acquired[0].Grant.Token)} {
		if res := renew(t, s, ref, 30*time.Second); res.Status != driver.Renewed {
			t.Errorf("%s: %+v", ref.Name.Full, res)
		}
		free(t, s, ref)
	}
	free(t, other, taken)
	free(t, other, next)
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	if len(s.book.entries) > 0 || len(s.book.keys) > 0 || len(s.book.taken) > 0 {
		t.Errorf("left in the book: %v, %v, %v", s.book.entries, s.book.keys, s.book.taken)
	}
}

// A place may become a hold in the moment in which it is given back.
func TestReleaseBesideAHandOver(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other := server.open(t), server.open(t)
	for range 100 {
		ref, place := hold(t, s, t.Name()), enqueue(t, other, t.Name())
		var both sync.WaitGroup
		both.Go(func() { free(t, s, ref) })
		both.Go(func() {
			if ok, err := other.Release(t.Context(), &driver.ReleaseRequest{Ref: place}); !ok || err != nil {
				t.Errorf("released: %t, %v", ok, err)
			}
		})
		both.Wait()
	}
	free(t, s, hold(t, s, t.Name()))
}
