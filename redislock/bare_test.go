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

// A beat may find one too, whose native request came late: it never tells a grant
// without a token.
func TestBeatOfBareAttempt(t *testing.T) {
	t.Parallel()
	s := sharedServer(t).open(t)
	ref := bareHold(t, s, t.Name())
	place := ref
	place.Token = 0
	res := s.Beat(t.Context(), []driver.Ref{place})[0]
	if res.Status != driver.Granted || res.Grant.Token <= ref.Token {
		t.Fatalf("%+v", res)
	}
	ref.Token = res.Grant.Token
	if again := s.Beat(t.Context(), []driver.Ref{place})[0]; again.Grant.Token != ref.Token {
		t.Errorf("%+v", again)
	}
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

// bareAgain takes and frees a name in a bucket that is trusted, perhaps, and tells
// whether its token was counted up by the native command.
func bareAgain(tb testing.TB, s *store, name string) (token uint64, native bool) {
	tb.Helper()
	req := request(name)
	req.Bare = true
	res, err := s.Acquire(tb.Context(), req)
	if err != nil || res.Status != driver.Granted {
		tb.Fatalf("%+v, %v", res, err)
	}
	free(tb, s, driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: res.Grant.Token})
	return res.Grant.Token, res.Grant.Bare
}

// What a server was meanwhile that refuses writes, or renewals alone, nobody knows.
func TestRefusedRenewalEndsTrust(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	for _, size := range []int{1, 2} { // of the batch, in which a refusal has another form
		ref := bareHold(t, s, t.Name())
		renewals := make([]driver.RenewRequest, size)
		for i := range renewals {
			renewals[i] = driver.RenewRequest{Ref: ref, TTL: time.Hour}
		}
		must(t, c, "REPLICAOF", "127.0.0.1", "1")
		if res := s.Renew(t.Context(), renewals)[0]; res.Err == nil {
			t.Fatalf("%+v", res)
		}
		must(t, c, "REPLICAOF", "NO", "ONE")
		free(t, s, ref)
		if token, native := bareAgain(t, s, t.Name()); native {
			t.Errorf("after a refusal: native, %d after %d", token, ref.Token)
		}
		if _, native := bareAgain(t, s, t.Name()); !native {
			t.Error("no bucket is trusted any more")
		}
	}
}

// A bucket that went back a little, on the connection that there was, is found by the
// tokens that were seen.
func TestBucketThatWentBack(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	free(t, s, bareHold(t, s, t.Name()))
	before, native := bareAgain(t, s, t.Name())
	if !native {
		t.Fatal("not native")
	}
	must(t, c, "DECRBY", bucketKey(tagOf(nameOf(t.Name()).Key)), "1")
	if token, native := bareAgain(t, s, t.Name()); token <= before || native {
		t.Errorf("%d after %d, native: %t", token, before, native)
	}
}

// Behind Sentinel the client answers from the old master for a moment after it has dialed
// the new one.
func TestNothingNativeBehindSentinel(t *testing.T) {
	t.Parallel()
	s := openAt(t, ownReplicated(t).URL())
	free(t, s, hold(t, s, t.Name()))
	if token, native := bareAgain(t, s, t.Name()); native {
		t.Errorf("token %d is native", token)
	}
}
