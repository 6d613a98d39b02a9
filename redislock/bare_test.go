package redislock

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// bareHold takes a name by the native commands.
func bareHold(tb testing.TB, s *store, name string) driver.Ref {
	tb.Helper()
	free(tb, s, hold(tb, s, name)) // a script makes the bucket's first token
	req := request(name)
	req.Bare = true
	res, err := s.Acquire(tb.Context(), req)
	if err != nil || res.Status != driver.Granted || !res.Grant.Bare {
		tb.Fatalf("%+v, %v", res, err)
	}
	return driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token}
}

// A look is enough for the token to be known, and since when the name is held.
func TestTokenIsLearnt(t *testing.T) {
	t.Parallel()
	s := sharedServer(t).open(t)
	ref := bareHold(t, s, t.Name())
	holder := func() driver.Holder {
		r, err := s.Inspect(t.Context(), ref.Name)
		if err != nil || len(r.Holders) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Holders[0]
	}
	before := holder()
	if before.Token != 0 || before.Owner != ref.Owner || before.Held > patience {
		t.Errorf("%+v", before)
	}
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref}})[0]; res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	after := holder()
	if after.Token != ref.Token || after.Held < before.Held || after.Held > patience || after.Left > before.Left {
		t.Errorf("%+v, before %+v", after, before)
	}
	free(t, s, ref)
}

// A break goes by the owner until the token is known. A place, and a value, keep
// what is known of it.
func TestBareHoldersOfAllKinds(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, other := server.open(t), server.open(t)
	breaks := func(ref driver.Ref, by driver.BreakRequest, want driver.BreakStatus) {
		t.Helper()
		by.Name, by.Reason = ref.Name, "test"
		if got, err := other.Break(t.Context(), &by); got != want || err != nil {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	ref := bareHold(t, s, t.Name())
	breaks(ref, driver.BreakRequest{Token: ref.Token}, driver.Mismatch)
	place := enqueue(t, other, t.Name())
	breaks(ref, driver.BreakRequest{Token: ref.Token}, driver.Mismatch)
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0]; res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	breaks(ref, driver.BreakRequest{Token: ref.Token}, driver.Marked)
	free(t, s, ref)
	free(t, other, place)

	ref = bareHold(t, s, t.Name())
	breaks(ref, driver.BreakRequest{Owner: ref.Owner, Force: true}, driver.Freed)
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0]; res.Status != driver.Lost {
		t.Errorf("%+v", res)
	}
}

// The same attempt again is the same grant, of a token that is known now.
func TestBareAttemptAgain(t *testing.T) {
	t.Parallel()
	s := sharedServer(t).open(t)
	ref := bareHold(t, s, t.Name())
	req := request(t.Name())
	req.Owner, req.Bare = ref.Owner, true
	res, err := s.Acquire(t.Context(), req)
	if err != nil || res.Status != driver.Granted || res.Grant.Token <= ref.Token || res.Grant.Bare {
		t.Fatalf("%+v, %v", res, err)
	}
	ref.Token = res.Grant.Token
	free(t, s, ref)
}

// After a new connection, and where the bucket is gone, the script makes the
// token.
func TestBareTokensAreLifted(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	ref := bareHold(t, s, t.Name())
	free(t, s, ref)
	again := func(why string) {
		t.Helper()
		req := request(t.Name())
		req.Bare = true
		got := retry(t, s, func() (driver.AcquireResult, error) { return s.Acquire(t.Context(), req) })
		if got.Status != driver.Granted || got.Grant.Token <= ref.Token {
			t.Errorf("%s: %+v after %d", why, got, ref.Token)
		}
		ref = driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: got.Grant.Token}
		free(t, s, ref)
	}
	must(t, c, "FLUSHALL")
	again("after FLUSHALL")
	must(t, c, "SET", bucketKey(tagOf(nameOf(t.Name()).Key)), "1000000000000001") // as if it had lost much
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	again("after a restart")
}
