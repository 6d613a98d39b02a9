package redislock

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// do runs a command as it would be typed.
func do(tb testing.TB, c rueidis.Client, words ...string) rueidis.RedisResult {
	tb.Helper()
	return c.Do(tb.Context(), c.B().Arbitrary(words...).Build())
}

func must(tb testing.TB, c rueidis.Client, words ...string) {
	tb.Helper()
	if err := do(tb, c, words...).Error(); err != nil && !rueidis.IsRedisNil(err) {
		tb.Fatalf("%v: %v", words, err)
	}
}

// refuses asserts the kind of an attempt's error.
func refuses(tb testing.TB, s *store, name string, want driver.Kind) {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), request(name))
	if err == nil {
		tb.Errorf("status %d, want %v", res.Status, want)
	} else if kind := s.Classify(err); kind != want {
		tb.Errorf("%v, want %v: %v", kind, want, err)
	}
}

// A key that is not ours is a conflict, alone and in a batch, and is never
// touched.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, c := server.open(t), server.client(t)
	for what, words := range map[string][]string{
		"a list": {"RPUSH", "", "theirs"}, "a hash": {"HSET", "", "f", "theirs"}, "a text": {"SET", "", "theirs"},
		"a text like ours": {"SET", "", "hf1 x theirs"}, "of a later version": {"SET", "", "hf2 x 1 2 3"},
	} {
		name := t.Name() + "/" + what
		key := recordKey(tagOf(":"+name), ":"+name)
		words[1] = key
		must(t, c, words...)
		before, _ := do(t, c, "DUMP", key).ToString()
		refuses(t, s, name, driver.Conflict)
		_, acquire := s.Acquire(t.Context(), request(name))
		_, inspect := s.Inspect(t.Context(), nameOf(name))
		_, brk := s.Break(t.Context(), &driver.BreakRequest{Name: nameOf(name), Token: 1, Reason: "none"})
		for call, err := range map[string]error{"acquire": acquire, "inspect": inspect, "break": brk} {
			if err == nil || !strings.Contains(err.Error(), key+",") || strings.Contains(err.Error(), "script") || s.Classify(err) != driver.Conflict {
				t.Errorf("%s, %s: %v", call, what, err)
			}
		}
		ref := driver.Ref{Name: nameOf(name), Owner: request("").Owner}
		if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref, Abandon: true}); ok {
			t.Errorf("%s: released, %v", what, err)
		}
		if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref}})[0]; res.Status == driver.Renewed {
			t.Errorf("%s: renewed", what)
		}
		answers := s.AcquireMany(t.Context(), []*driver.AcquireRequest{request(name), request(name + "/other")})
		if kind := s.Classify(answers[0].Err); kind != driver.Conflict {
			t.Errorf("%s, in a batch: %v, %v", what, kind, answers[0].Err)
		}
		if answers[1].Err != nil || answers[1].Status != driver.Granted {
			t.Errorf("beside %s in a batch: %+v", what, answers[1])
		}
		if after, _ := do(t, c, "DUMP", key).ToString(); after != before {
			t.Errorf("%s was changed", what)
		}
	}
}

// So are the keys that go with a name.
func TestForeignKeysBeside(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	s, c := server.open(t), server.client(t)
	for i, held := range []bool{true, true, true, false} {
		name := t.Name() + strconv.Itoa(i)
		key := allKeys(":" + name)[min(2+i, 4)]
		must(t, c, "SET", key, "theirs")
		var ref driver.Ref
		req := request(name)
		if req.Queue = true; held {
			ref = hold(t, s, name)
		}
		if i > 1 {
			req.Mode = driver.Shared
		}
		if res, err := s.Acquire(t.Context(), req); err == nil || s.Classify(err) != driver.Conflict {
			t.Errorf("%s: %+v, %v", key, res, err)
		}
		if held {
			free(t, s, ref)
		}
		if status, err := s.Break(t.Context(), &driver.BreakRequest{Name: nameOf(name), Owner: hold(t, s, name).Owner, Force: true}); status != driver.Freed {
			t.Errorf("%s: %v, %v", key, status, err)
		}
		if text, err := do(t, c, "GET", key).ToString(); text != "theirs" {
			t.Errorf("%s: %q, %v", key, text, err)
		}
	}
}

// So is a counter of a bucket that is none; what was taken by then is given back.
func TestForeignBucket(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	free(t, s, bareHold(t, s, "name"))
	bucket := bucketKey(tagOf(":name"))
	must(t, c, "DEL", bucket)
	must(t, c, "RPUSH", bucket, "theirs")
	refuses(t, s, "name", driver.Conflict)
	locks := openLocks(t, server.url(), nil)
	for range 2 {
		if _, err := locks.TryAcquire(t.Context(), "name", nil); !errors.Is(err, holdfast.ErrConflict) {
			t.Error(err)
		}
	}
	if keys := left(t, server); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
	if text, err := server.Do("LRANGE", bucket, "0", "-1"); text != "theirs" {
		t.Errorf("%q, %v", text, err)
	}
	must(t, c, "DEL", bucket)
	free(t, s, hold(t, s, "name"))
}

// With a full memory nothing is granted anew, but holders renew, release and hand
// over.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	alone, wanted, place := hold(t, s, "alone"), hold(t, s, "wanted"), enqueue(t, s, "wanted")
	must(t, c, "CONFIG", "SET", "maxmemory", "1")
	refuses(t, s, "new", driver.Unavailable)
	for _, ref := range []driver.Ref{alone, wanted} {
		if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]; res.Status != driver.Renewed {
			t.Errorf("renewal: %+v", res)
		}
		free(t, s, ref)
	}
	res := s.Beat(t.Context(), []driver.Ref{place})[0]
	if res.Status != driver.Granted {
		t.Fatalf("beat: %+v", res)
	}
	if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: place, Abandon: true}); !ok || err != nil {
		t.Errorf("abandon: %t, %v", ok, err)
	}
	must(t, c, "CONFIG", "SET", "maxmemory", "0")
	free(t, s, hold(t, s, "new"))
}

// So it is with all else that keeps what there is: readers and permits, places, what a person
// breaks, what a release leaves taken, and what a renewal says anew.
func TestFullMemoryKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, v := range []redistest.Version{redistest.Redis62, redistest.Default, redistest.Valkey91} {
		server := versionServer(t, v)
		s, c := server.open(t), server.client(t)
		reader, permit := request("read"), request("permits")
		reader.Mode, permit.Mode, permit.N, permit.Limit = driver.Shared, driver.Permits, 1, 2
		refs := []driver.Ref{hold(t, s, "alone"), hold(t, s, "wanted")}
		place := enqueue(t, s, "wanted")
		for _, req := range []*driver.AcquireRequest{reader, permit} {
			ref, status := ask(t, s, req)
			if status != driver.Granted {
				t.Fatal(status)
			}
			refs = append(refs, ref)
		}
		must(t, c, "CONFIG", "SET", "maxmemory", "1")
		if beat := s.Beat(t.Context(), []driver.Ref{place})[0]; beat.Status != driver.Waiting {
			t.Errorf("%s: beat: %+v", v, beat)
		}
		for i, ref := range refs {
			for _, label := range []string{"", "another"} {
				if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: 2 * time.Hour, Label: label}})[0]; res.Status != driver.Renewed || res.Window < 2*time.Hour {
					t.Errorf("%s: renewal of %s by %q: %+v", v, ref.Name.Full, label, res)
				}
			}
			if i > 0 {
				if status, err := s.Break(t.Context(), &driver.BreakRequest{Name: ref.Name, Owner: ref.Owner, Reason: "test"}); status != driver.Marked {
					t.Errorf("%s: break of %s: %v, %v", v, ref.Name.Full, status, err)
				}
			}
			if ok, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref, Keep: time.Hour}); !ok {
				t.Errorf("%s: release of %s: %v", v, ref.Name.Full, err)
			}
			if r, err := s.Inspect(t.Context(), ref.Name); err != nil || len(r.Holders) != 1 || !strings.HasSuffix(r.Holders[0].Label, "another (released)") {
				t.Errorf("%s: %s: %+v, %v", v, ref.Name.Full, r, err)
			}
		}
	}
}

// leastRights is what an ACL user needs; docs/store-redis.md has it too.
const leastRights = "~hf:* ~hfq:* ~hfp:* ~hfh:* ~hft:* ~hfx:* &hfc:* +evalsha +eval +script|load +get +mget +set +incr +del +exists +time +pttl +pexpire " +
	"+pexpireat +hget +hset +hsetnx +hdel +hlen +hgetall +rpush +rpop +lpush +lpop +lindex +lset +lrange +type +publish +subscribe +unsubscribe +scan +info +config|get +hello +ping +select"

func TestLeastRights(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	c := server.client(t)
	must(t, c, strings.Fields("ACL SETUSER locker on >secret resetchannels -@all "+leastRights)...)
	must(t, c, strings.Fields("ACL SETUSER reader on >secret ~* -@all +evalsha +eval +script|load +get +mget +exists +info +config|get +hello +ping")...)
	s := openAt(t, strings.Replace(server.url(), "//", "//locker:secret@", 1))
	ref, place := hold(t, s, "name"), enqueue(t, s, "name")
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour, Label: "new"}})[0]; res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	if r, err := s.Inspect(t.Context(), ref.Name); err != nil || len(r.Holders) != 1 || len(r.Waiters) != 1 || r.Holders[0].Label != "new" {
		t.Errorf("inspect: %+v, %v", r, err)
	}
	for r, err := range s.List(t.Context(), "") {
		if err != nil || r.Name != "name" {
			t.Errorf("list: %+v, %v", r, err)
		}
	}
	if status, err := s.Break(t.Context(), &driver.BreakRequest{Name: ref.Name, Token: ref.Token, Reason: "test"}); status != driver.Marked {
		t.Errorf("break: %d, %v", status, err)
	}
	free(t, s, ref)
	free(t, s, place)
	weak := openAt(t, strings.Replace(server.url(), "//", "//reader:secret@", 1))
	refuses(t, weak, "name", driver.Denied)
	u := strings.Replace(server.url(), "//", "//locker:s3cr3t@", 1)
	if _, err := openURL(t.Context(), u); err == nil || classify(err) != driver.Denied || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("a wrong password: %v", err)
	}
}

// What is needed beside that, of a cluster's nodes, of a master behind Sentinel, and for
// Options.Wait.
const (
	clusterRights  = "+cluster|slots +cluster|shards +asking +ssubscribe +sunsubscribe +spublish"
	sentinelRights = "+role"
	waitRights     = "+wait"
)

func TestLeastRightsElsewhere(t *testing.T) {
	t.Parallel()
	r, c := ownReplicated(t), ownCluster(t, redistest.Default, true)
	v := ownCluster(t, redistest.Valkey91, false)
	for _, d := range []struct {
		url, rights string
		nodes       []*redistest.Server
	}{
		{r.URL(), sentinelRights, r.Servers},
		{c.URL(), clusterRights, append(c.Masters, c.Replicas...)},
		{v.URL(), clusterRights, v.Masters},
	} {
		for _, node := range d.nodes {
			if _, err := node.Do(strings.Fields("ACL SETUSER locker on >secret resetchannels -@all " + leastRights + " " + d.rights + " " + waitRights)...); err != nil {
				t.Fatal(err)
			}
		}
		at := strings.Replace(d.url, "//", "//locker:secret@", 1)
		s, other := openAt(t, at), openAt(t, at)
		var h heard
		h.listen(other)
		for i := range 10 {
			name := "name" + strconv.Itoa(i)
			ref, place := hold(t, s, name), enqueue(t, other, name)
			free(t, s, ref)
			until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
		}
		n := 0
		for _, err := range s.List(t.Context(), "") {
			if n++; err != nil {
				t.Error(err)
			}
		}
		if n != 10 {
			t.Errorf("%d names listed", n)
		}
		if d.nodes[0] != v.Masters[0] {
			hold(t, openAt(t, at+"?wait=1"), "waited for")
		}
	}
}

// Where a client may not listen it asks in a rhythm of its own.
func TestDeafClient(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	must(t, server.client(t), strings.Fields("ACL SETUSER deaf on >secret ~* resetchannels +@all")...)
	locks := make([]*holdfast.Client, 2)
	for i := range locks {
		var err error
		if locks[i], err = holdfast.Open(t.Context(), strings.Replace(server.url(), "//", "//deaf:secret@", 1), nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks[i].Close() })
	}
	for range 3 {
		lease, err := locks[0].Acquire(t.Context(), "name", nil)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			next, err := locks[1].Acquire(t.Context(), "name", nil)
			if err == nil {
				err = next.Release(t.Context())
			}
			got <- err
		}()
		until(t, "one waits", func() bool {
			r, err := locks[0].Inspect(t.Context(), "name")
			return err == nil && len(r.Waiters) == 1
		})
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, strings.Replace(server.url(), "//", "//deaf:secret@", 1))
	hold(t, s, "name")
	req := request("name")
	req.Queue = true
	if res, err := s.Acquire(t.Context(), req); err != nil || res.Queue.Again != deafBeat {
		t.Errorf("%+v, %v", res, err)
	}
}

// The server has forgotten the scripts; nothing is lost by that.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	flush := func() { must(t, c, "SCRIPT", "FLUSH") }
	flush()
	ref := hold(t, s, "name")
	flush()
	place := enqueue(t, s, "name")
	flush()
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]; res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	flush()
	free(t, s, ref)
	flush()
	if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Granted {
		t.Errorf("beat: %+v", res)
	}
}
