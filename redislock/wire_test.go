package redislock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// docs/wire.md has these.
func TestKeys(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		":orders/42": "hf:{887}::orders/42", "shop:Draw 2026-11": "hf:{383}:shop:Draw 2026-11",
	} {
		if got := recordKey(tagOf(raw), raw); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

// Records as other programs may write them, read and acted upon by ours.
func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, c := server.open(t), server.client(t)
	const owner, client = "000102030405060708090a0b0c0d0e0f", "0123456789abcdef"
	raw := ":" + t.Name()
	key := recordKey(tagOf(raw), raw)
	must(t, c, "SET", key, "hf1 x "+owner+" 1764510000000000 1764510000000000 "+client+" host/1/other", "PX", "60000")
	r, err := s.Inspect(t.Context(), nameOf(t.Name()))
	if err != nil || len(r.Holders) != 1 || r.Holders[0].Label != "host/1/other" || r.Holders[0].Token != 1764510000000000 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, status := try(t, s, t.Name()); status != driver.Held {
		t.Errorf("status %d", status)
	}
	place := enqueue(t, s, t.Name())
	free(t, s, driver.Ref{Name: nameOf(t.Name()), Owner: r.Holders[0].Owner, Token: 1764510000000000})
	if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Granted {
		t.Errorf("beat: %+v", res)
	}
	free(t, s, place)
}
