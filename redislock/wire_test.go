package redislock

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

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

// vectors are the three records of docs/wire.md: taken by native commands, after the first
// renewal, and with one who waits.
func vectors(t *testing.T) (bare, learnt, queued string) {
	t.Helper()
	text, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, _ := strings.Cut(string(text), "The record of `shop:Draw 2026-11`")
	_, text2, _ = strings.Cut(text2, "```\n")
	block, _, ok := strings.Cut(text2, "\n```")
	single, queued, ok2 := strings.Cut(block, "\n\n")
	bare, learnt, ok3 := strings.Cut(single, "\n")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("the block of vectors is another: %q", block)
	}
	return bare, learnt, queued
}

// withoutTimes makes texts alike that differ in their times.
func withoutTimes(text string) string {
	return regexp.MustCompile(`\b\d{16}\b`).ReplaceAllString(text, "TIME")
}

// clockOf is the server's clock in µs.
func clockOf(t *testing.T, c rueidis.Client) int64 {
	t.Helper()
	told, err := do(t, c, "TIME").AsIntSlice()
	if err != nil || len(told) != 2 {
		t.Fatal(told, err)
	}
	return told[0]*1_000_000 + told[1]
}

const second = 1_000_000 // in µs

// sinceOf reads SINCE of a record of the first form.
func sinceOf(t *testing.T, record string) int64 {
	t.Helper()
	f := strings.Fields(record)
	if len(f) < 5 {
		t.Fatalf("no record: %q", record)
	}
	since, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return since
}

// The vectors of docs/wire.md are what is written, and what is read of them is true: that the
// hold began its TTL before it ends, until a renewal writes down since when it is.
func TestVectors(t *testing.T) {
	t.Parallel()
	bare, learnt, queued := vectors(t)
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	const client, token = "0123456789abcdef", 1767225600000000
	name := driver.Name{Key: "shop:Draw 2026-11", Prefix: "shop", Full: "Draw 2026-11"}
	req := &driver.AcquireRequest{Name: name, Label: "web-1/4242", TTL: 30 * time.Second}
	req.Owner, _ = readOwner("00112233445566778899aabbccddeeff")
	words := (&store{id: client}).bareCommands(nil, req)[0].Words
	if words[2] != bare {
		t.Errorf("native:\n%s, want\n%s", words[2], bare)
	}
	must(t, c, words...)
	must(t, c, "PEXPIRE", words[1], "20000") // as if ten seconds had passed
	is := func(want uint64) {
		t.Helper()
		r, err := s.Inspect(t.Context(), name)
		if err != nil || len(r.Holders) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		h := r.Holders[0]
		if h.Token != want || h.Owner != req.Owner || h.Label != req.Label || h.Held < 10*time.Second || h.Held > 10*time.Second+patience || h.Left > 20*time.Second {
			t.Errorf("%+v", h)
		}
	}
	is(0)
	ref := driver.Ref{Name: name, Owner: req.Owner, Token: token}
	before := clockOf(t, c)
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref}})[0]; res.Status != driver.Renewed {
		t.Fatalf("%+v", res)
	}
	after := clockOf(t, c)
	is(token)
	text, _ := do(t, c, "GET", words[1]).ToString()
	if withoutTimes(text) != withoutTimes(learnt) {
		t.Errorf("after a renewal:\n%s, want\n%s", text, learnt)
	}
	if since := sinceOf(t, text); since < before-10*second-int64(patience/time.Microsecond) || since > after-10*second+1000 { // PTTL is in ms
		t.Errorf("since %d, asked between %d and %d, ten seconds later", since, before, after)
	}
	waiter := request("")
	waiter.Name, waiter.Queue = name, true
	if _, status := ask(t, s, waiter); status != driver.Waiting {
		t.Fatal(status)
	}
	text, _ = do(t, c, "GET", words[1]).ToString()
	if withoutTimes(text) != withoutTimes(queued) {
		t.Errorf("with one who waits:\n%q, want\n%q", text, queued)
	}
	is(token)
}

// The same of a record with one who waits, whose time is over, one who gave up, and one
// who lives.
func TestQueuesOfOthers(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, c := server.open(t), server.client(t)
	const owner, dead, lives = "000102030405060708090a0b0c0d0e0f", "ffeeddccbbaa99887766554433221100", "ffeeddccbbaa99887766554433221101"
	raw := ":" + t.Name()
	tag := tagOf(raw)
	key, queue, places := recordKey(tag, raw), "hfq:"+tag+":"+raw, "hfp:"+tag+":"+raw
	must(t, c, "SET", key, "hf1 w "+owner+" 1764510000000000 4070908800000000 4070908830000000 000000000041 000001 1764510000000000 0123456789abcdef host/1/other\n")
	must(t, c, "RPUSH", queue, dead+" x 1764510000000000 00003000 0 0123456789abcdef a", "-", lives+" x 1764510000000000 00003000 0 0123456789abcdef b")
	must(t, c, "HSET", places, dead, "42", lives, "44 4070908800000000")
	r, err := s.Inspect(t.Context(), nameOf(t.Name()))
	if err != nil || len(r.Holders) != 1 || r.Holders[0].Label != "host/1/other" || r.Holders[0].Token != 1764510000000000 ||
		len(r.Waiters) != 1 || r.Waiters[0].Label != "b" {
		t.Fatalf("%+v, %v", r, err)
	}
	last := enqueue(t, s, t.Name())
	free(t, s, driver.Ref{Name: nameOf(t.Name()), Owner: r.Holders[0].Owner, Token: 1764510000000000})
	next := driver.Ref{Name: nameOf(t.Name()), Owner: r.Waiters[0].Owner}
	for _, place := range []driver.Ref{next, last} {
		if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Granted {
			t.Errorf("beat: %+v", res)
		}
		free(t, s, place)
	}
}
