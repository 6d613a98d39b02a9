package etcdlock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// refuses asserts the kind of an attempt's error.
func refuses(tb testing.TB, s *store, req *driver.AcquireRequest, want driver.Kind) {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), req)
	if err == nil {
		tb.Errorf("%s: status %d, want %v", req.Name.Full, res.Status, want)
	} else if kind := s.Classify(err); kind != want {
		tb.Errorf("%s: %v, want %v: %v", req.Name.Full, kind, want, err)
	}
}

// A key that is not ours is a conflict, alone and in a batch, and is never
// touched.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, api := server.open(t), server.api(t)
	owner := strings.Repeat("0a", 16)
	for what, kv := range map[string][2]string{
		"a name":         {"/theirs", "x"},
		"of a lock":      {"/l/theirs", "x"},
		"of permits":     {"/p/theirs", "x"},
		"a text":         {"/l/x" + owner, "theirs"},
		"of later times": {"/l/x" + owner, "hf2 x 1 label"},
	} {
		req := request(t.Name() + "/" + what)
		key := root + req.Name.Key + kv[0]
		if _, err := api.Put(t.Context(), key, kv[1]); err != nil {
			t.Fatal(err)
		}
		before, err := api.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, s, req, driver.Conflict)
		queued := request(req.Name.Full)
		queued.Queue = true
		refuses(t, s, queued, driver.Conflict)
		refuses(t, s, queued, driver.Conflict) // with the lease of places at hand
		permits := request(req.Name.Full)
		permits.Mode, permits.N, permits.Limit = driver.Permits, 1, 2
		refuses(t, s, permits, driver.Conflict)
		if _, err := s.Inspect(t.Context(), req.Name); err == nil || s.Classify(err) != driver.Conflict {
			t.Errorf("%s: inspect: %v", what, err)
		}
		if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}, Abandon: true}); ok || err != nil {
			t.Errorf("%s: released: %t, %v", what, ok, err)
		}
		answers := s.AcquireMany(t.Context(), []*driver.AcquireRequest{req, request(req.Name.Full + "/other")})
		if kind := s.Classify(answers[0].Err); kind != driver.Conflict || answers[1].Status != driver.Granted {
			// The owner was abandoned just now.
			if answers[0].Status != driver.Gone {
				t.Errorf("%s, in a batch: %+v", what, answers)
			}
		}
		after, err := api.Get(t.Context(), key)
		if err != nil || after.Kvs[0].ModRevision != before.Kvs[0].ModRevision {
			t.Errorf("%s was changed", what)
		}
		if all, err := api.Get(t.Context(), nameKey(req.Name.Key), clientv3.WithPrefix()); err != nil || all.Count != 1 {
			t.Errorf("%s: %v, %v", what, all.Kvs, err)
		}
	}
}

// Report B074: names never match by their beginnings, nor by what else is in the
// cluster.
func TestNamesThatBeginAlike(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b, api := clientAt(t, server.URL()), clientAt(t, server.URL()), server.api(t)
	names := []string{"x", "xy", "xy/1", "xy/", "xyz", "x%79", "xy+", "XY", "xy/l/x" + strings.Repeat("0a", 16)}
	for i := range names {
		names[i] = t.Name() + names[i]
	}
	if _, err := api.Put(t.Context(), root+"+"+escape(t.Name()+"xyq"), "theirs"); err != nil {
		t.Fatal(err)
	}
	for _, held := range names {
		lease, err := a.Acquire(t.Context(), held, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range names {
			if other == held {
				continue
			}
			second, err := b.TryAcquire(t.Context(), other, nil)
			if err != nil {
				t.Fatalf("%q beside %q: %v", other, held, err)
			}
			_ = second.Release(t.Context())
		}
		_ = lease.Release(t.Context())
	}
}

// With a full disk nothing is granted anew, but holders renew and release, and
// those hold who wait.
func TestFullCluster(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--quota-backend-bytes", "1000000")
	s, api := server.open(t), server.api(t)
	var h heard
	h.listen(s)
	alone, wanted, place := hold(t, s, "alone"), hold(t, s, "wanted"), enqueue(t, s, "wanted")
	until(t, "it is full", func() bool {
		_, err := api.Put(t.Context(), "filler", strings.Repeat("x", 100_000))
		return err != nil
	})
	refuses(t, s, request("new"), driver.Unavailable)
	for _, ref := range []driver.Ref{alone, wanted} {
		if res := renew(t, s, ref, time.Minute); res.Status != driver.Renewed {
			t.Errorf("renewal: %+v", res)
		}
		free(t, s, ref)
	}
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: place, Abandon: true}); !ok || err != nil {
		t.Errorf("abandon: %t, %v", ok, err)
	}
}

// must runs steps of the administrator.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// withUsers makes the cluster ask for users, of whom locker has the least rights
// for the prefix shop.
func withUsers(t *testing.T, server cluster) {
	t.Helper()
	api, ctx := server.api(t), t.Context()
	_, err := api.RoleAdd(ctx, "root")
	must(t, err)
	_, err = api.UserAdd(ctx, "root", "secret")
	must(t, err)
	_, err = api.UserGrantRole(ctx, "root", "root")
	must(t, err)
	_, err = api.RoleAdd(ctx, "locker")
	must(t, err)
	for _, from := range []string{"hf/shop+", "hfx/shop+"} {
		_, err = api.RoleGrantPermission(ctx, "locker", from, clientv3.GetPrefixRangeEnd(from), clientv3.PermissionType(clientv3.PermReadWrite))
		must(t, err)
	}
	_, err = api.UserAdd(ctx, "locker", "s3cr3t")
	must(t, err)
	_, err = api.UserGrantRole(ctx, "locker", "locker")
	must(t, err)
	_, err = api.AuthEnable(ctx)
	must(t, err)
}

// The least rights: all below the two beginnings of an application's names.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	withUsers(t, server)
	ctx := t.Context()
	at := strings.Replace(server.URL(), "//", "//locker:s3cr3t@", 1)
	s := openAt(t, at)
	mine := request("name")
	mine.Name = driver.Name{Key: "shop+name", Full: "name", Prefix: "shop"}
	ref, status := ask(t, s, mine)
	if status != driver.Granted {
		t.Fatalf("status %d", status)
	}
	queued := request("name")
	queued.Name, queued.Queue = mine.Name, true
	place, status := ask(t, s, queued)
	if status != driver.Waiting {
		t.Fatalf("status %d", status)
	}
	quiet(t, s)
	if res := renew(t, s, ref, time.Hour); res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	if r, err := s.Inspect(ctx, ref.Name); err != nil || len(r.Holders) != 1 || len(r.Waiters) != 1 || r.Holders[0].Left == 0 {
		t.Errorf("inspect: %+v, %v", r, err)
	}
	for r, err := range s.List(ctx, "shop") {
		if err != nil || r.Name != "name" {
			t.Errorf("list: %+v, %v", r, err)
		}
	}
	if status, err := s.Break(ctx, &driver.BreakRequest{Name: ref.Name, Token: ref.Token, Reason: "test"}); status != driver.Marked {
		t.Errorf("break: %d, %v", status, err)
	}
	refuses(t, s, request("another application's"), driver.Denied)
	answers := s.AcquireMany(ctx, []*driver.AcquireRequest{request("another application's"), mine})
	if s.Classify(answers[0].Err) != driver.Denied || answers[1].Err != nil || answers[1].Status != driver.Granted {
		t.Errorf("in a batch: %+v", answers)
	}
	free(t, s, ref)
	if ok, err := s.Release(ctx, &driver.ReleaseRequest{Ref: place, Abandon: true}); !ok || err != nil {
		t.Errorf("abandon: %t, %v", ok, err)
	}
	if _, err := openURL(ctx, strings.Replace(server.URL(), "//", "//locker:wr0ng@", 1)); err == nil || classify(err) != driver.Denied || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := openURL(ctx, server.URL()); err == nil || classify(err) != driver.Denied {
		// A lease alone needs no right on older servers.
		t.Logf("without a user: %v", err)
	}
	urlsWithPasswords(t, server)
}

// urlsWithPasswords opens a server that wants a user.
func urlsWithPasswords(t *testing.T, server cluster) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("s3cr3t\nmore"), 0o600))
	openAt(t, strings.Replace(server.URL(), "//", "//locker@", 1)+"?password-file="+file)
}

func TestURLs(t *testing.T) {
	server := sharedServer(t)
	for _, text := range []string{server.URL(), server.URL() + "/", server.URL() + "," + server.Nodes[0].Addr} {
		openAt(t, text)
	}
	for text, want := range map[string]driver.Kind{
		server.URL() + "?speed=1":                           driver.Invalid,
		server.URL() + "/x":                                 driver.Invalid,
		server.URL() + "?ca-file=x":                         driver.Invalid,
		"etcd://":                                           driver.Invalid,
		"etcd://h:1,:2":                                     driver.Invalid,
		"etcd://u:wr0ng@h:1?password-file=x":                driver.Invalid,
		"etcd://u@h:1?password-file=/not/there":             driver.Invalid,
		"etcds://h:1?ca-file=/not/there":                    driver.Invalid,
		"etcds://h:1?cert-file=/not/there&key-file=/either": driver.Invalid,
		"etcd://u:wr0ng@127.0.0.1:1":                        driver.Unavailable,
	} {
		_, err := openURL(t.Context(), text)
		if err == nil || classify(err) != want || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// A client of the user's is left open.
func TestUsersClient(t *testing.T) {
	t.Parallel()
	api := sharedServer(t).api(t)
	opened, err := New(api, nil)
	must(t, err)
	s := opened.(*store) //nolint:errcheck // New makes no other
	s.Listen(func(driver.Signal) {})
	ref := hold(t, s, t.Name())
	place := enqueue(t, s, t.Name())
	free(t, s, place)
	free(t, s, ref)
	must(t, s.Close())
	_, err = api.Get(t.Context(), "x")
	must(t, err)
}
