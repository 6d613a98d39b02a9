package etcdlock

import (
	"encoding/hex"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

const wireOwner = "000102030405060708090a0b0c0d0e0f"

// docs/wire.md has these.
func TestKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"+orders%2f42":          "hf/+orders%2f42/l/x0123456789abcdef0000000000000000",
		"shop+%44raw%202026-11": "hf/shop+%44raw%202026-11/l/x0123456789abcdef0000000000000000",
	} {
		if got := slotKey(key, driver.Exclusive, 0x0123456789abcdef, 0); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	const line = " " + wireOwner + " 1764510000000 host/1/job"
	for want, p := range map[string]place{
		"hf1 x" + line: {mode: driver.Exclusive},
		"hf1 p " + wireOwner + " 2/5 1764510000000 host/1/job": {mode: driver.Permits, n: 2, limit: 5},
		"hf1 S" + line: {mode: driver.Shared, kept: true},
		"hf1 x" + line + "\n@3 http://a:80\n!too slow (ann)": {mode: driver.Exclusive, said: "http://a:80", seq: 3, broken: "too slow (ann)"},
		"hf1 x" + line + "\n=shop:Other":                     {mode: driver.Exclusive, prefix: "shop", name: "Other"},
	} {
		if p.name == "" {
			p.prefix, p.name = "shop", "Draw 2026-11"
		}
		p.key, p.since, p.label = slotKey("shop+%44raw%202026-11", p.mode, 1, 2), 1764510000000, "host/1/job"
		if _, err := hex.Decode(p.owner[:], []byte(wireOwner)); err != nil {
			t.Fatal(err)
		}
		if got := p.value(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		back, ok := readPlace(&mvccpb.KeyValue{Key: []byte(p.key), Value: []byte(want)})
		if !ok || *back != p {
			t.Errorf("%q is read as %+v, want %+v", want, back, p)
		}
	}
	for _, text := range []string{"", "hf1", "hf1 x", "hf2 x" + line, "hf1 s" + line, "hf1 x 00 1 x", "hf1 x " + wireOwner + " soon x"} {
		if p, ok := readPlace(&mvccpb.KeyValue{Key: []byte(slotKey("+a", driver.Exclusive, 1, 2)), Value: []byte(text)}); ok {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}

// Keys as another program may write them, read and acted upon by ours.
func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, api := server.open(t), server.api(t)
	var h heard
	h.listen(s)
	lease, err := api.Grant(t.Context(), 60)
	must(t, err)
	name := nameOfText(t.Name())
	key := "hf/" + name.Key + "/l/x0123456789abcdef0000000000000007"
	put, err := api.Put(t.Context(), key, "hf1 x "+wireOwner+" 1764510000000 host/1/other\n?of a later version", clientv3.WithLease(lease.ID))
	must(t, err)
	r, err := s.Inspect(t.Context(), name)
	if err != nil || len(r.Holders) != 1 || r.Holders[0].Label != "host/1/other" || r.Holders[0].Left < 50*time.Second {
		t.Fatalf("%+v, %v", r, err)
	}
	if token := uint64(put.Header.Revision); r.Holders[0].Token != token { //nolint:gosec // a revision
		t.Errorf("token %d, want %d", r.Holders[0].Token, token)
	}
	if _, status := try(t, s, t.Name()); status != driver.Held {
		t.Errorf("status %d", status)
	}
	place := enqueue(t, s, t.Name())
	free(t, s, driver.Ref{Name: name, Owner: r.Holders[0].Owner, Mode: driver.Exclusive, Token: r.Holders[0].Token})
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	free(t, s, place)
}
