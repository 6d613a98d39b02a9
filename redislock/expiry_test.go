package redislock

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// remaining is the PTTL of a key: -1 never, -2 it is not there.
func remaining(tb testing.TB, c rueidis.Client, key string) int64 {
	tb.Helper()
	ms, err := do(tb, c, "PTTL", key).ToInt64()
	if err != nil {
		tb.Fatal(err)
	}
	return ms
}

// A look at a record in its last millisecond, which brings the token, does not make
// it stay for ever.
func TestLookInTheLastMillisecond(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, c := server.open(t), server.client(t)
	key := recordKey(tagOf(nameOf(t.Name()).Key), nameOf(t.Name()).Key)
	for range 30 {
		ref := bareHold(t, s, t.Name())
		must(t, c, "PEXPIRE", key, "4")
		for remaining(t, c, key) > 0 { //nolint:revive // it ends by itself
		}
		s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref}})
		if remaining(t, c, key) == -1 {
			t.Fatal("the record never expires")
		}
		until(t, "it lapses", func() bool { return remaining(t, c, key) == -2 })
	}
}

// A shared hold that is released, and kept taken, is no reason for its key to stay.
func TestKeptHoldersExpire(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, c := server.open(t), server.client(t)
	req := request(t.Name())
	req.Mode = driver.Shared
	ref, status := ask(t, s, req)
	if status != driver.Granted {
		t.Fatalf("status %d", status)
	}
	if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref, Keep: time.Second}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for _, key := range allKeys(ref.Name.Key) {
		if key != bucketKey(tagOf(ref.Name.Key)) && remaining(t, c, key) == -1 {
			t.Errorf("%s never expires", key)
		}
	}
}
