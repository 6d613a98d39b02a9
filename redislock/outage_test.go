package redislock

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// heard collects signals.
type heard struct {
	mu      sync.Mutex
	signals []driver.Signal
}

func (h *heard) listen(s *store) {
	s.Listen(func(sig driver.Signal) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.signals = append(h.signals, sig)
	})
}

func (h *heard) has(kind driver.SignalKind, owner driver.Owner) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sig := range h.signals {
		if sig.Kind == kind && sig.Owner == owner {
			return true
		}
	}
	return false
}

// A server that is killed is unavailable, and its locks come back with its
// data.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--appendonly", "yes", "--appendfsync", "always")
	s := server.open(t)
	var h heard
	h.listen(s)
	ref, place := hold(t, s, "name"), enqueue(t, s, "name")
	server.Kill()
	until(t, "the outage is told", func() bool {
		_, err := s.Acquire(t.Context(), request("other"))
		return err != nil && s.Classify(err) == driver.Unavailable
	})
	for what, err := range map[string]error{
		"renew": s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref}})[0].Err, "beat": s.Beat(t.Context(), []driver.Ref{place})[0].Err,
	} {
		if err == nil || s.Classify(err) != driver.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	until(t, "signals were missed", func() bool { return h.has(driver.MissedSignal, driver.Owner{}) })
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]; res.Status != driver.Renewed {
		t.Errorf("after the restart: %+v", res)
	}
	free(t, s, ref)
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
}

// A server that comes back empty has forgotten all, and nobody is told that he
// still holds; tokens grow nevertheless.
func TestServerForgets(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := server.open(t)
	forget := map[string]func(){
		"restart": func() {
			if err := server.restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"flush": func() { must(t, server.client(t), "FLUSHALL") },
	}
	for what, lose := range forget {
		for range 50 { // tokens of a bucket in a hurry
			free(t, s, hold(t, s, "name"))
		}
		ref, place := hold(t, s, "name"), enqueue(t, s, "name")
		lose()
		res := retry(t, s, func() (driver.RenewResult, error) {
			res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]
			return res, res.Err
		})
		if res.Status != driver.Lost {
			t.Errorf("renewal after a %s: %+v", what, res)
		}
		if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Gone {
			t.Errorf("beat after a %s: %+v", what, res)
		}
		next := hold(t, s, "name")
		if next.Token <= ref.Token {
			t.Errorf("token %d after %d and a %s", next.Token, ref.Token, what)
		}
		free(t, s, next)
	}
}

// When the connection of the messages is cut, a MissedSignal follows, and
// messages come again.
func TestMissedMessages(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	var h heard
	h.listen(s)
	ref, place := hold(t, s, "name"), enqueue(t, s, "name")
	must(t, c, "CLIENT", "KILL", "TYPE", "pubsub")
	until(t, "the cut is told", func() bool { return h.has(driver.MissedSignal, driver.Owner{}) })
	if _, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref}); err != nil {
		t.Fatal(err)
	}
	until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
}

// A client of the user's is left as it was: open, and without our subscription.
func TestUsersClient(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	c := server.client(t)
	opened, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*store) //nolint:errcheck // New makes no other
	s.Listen(func(driver.Signal) {})
	ref := hold(t, s, "name")
	place := enqueue(t, s, "name")
	channels := func() string {
		text, _ := do(t, c, "PUBSUB", "CHANNELS").AsStrSlice()
		return strings.Join(text, " ")
	}
	if channels() == "" {
		t.Error("no subscription")
	}
	free(t, s, place)
	free(t, s, ref)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := channels(); left != "" {
		t.Errorf("the subscription %s stays", left)
	}
	must(t, c, "PING")
}

// A call returns when its ctx ends though the server is silent, and others on the
// connection go on.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, c := server.open(t), server.client(t)
	must(t, c, "CLIENT", "PAUSE", "600", "ALL")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	_, err := s.Acquire(ctx, request("name"))
	if took := time.Since(begin); took > 400*time.Millisecond {
		t.Errorf("a canceled call took %v", took)
	}
	if err == nil || s.Classify(err) != driver.Indeterminate {
		t.Errorf("a canceled call: %v", err)
	}
	if _, err := s.Acquire(ctx, request("name")); s.Classify(err) != driver.Canceled {
		t.Errorf("with an ended ctx: %v", err)
	}
	free(t, s, hold(t, s, "other"))
}

// Of many waiters most have died: one release passes over them all.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s, other, c := server.open(t), server.open(t), server.client(t)
	var h heard
	h.listen(other)
	ref := hold(t, s, "name")
	places := make([]driver.Ref, 1000)
	for i := range places {
		places[i] = enqueue(t, other, "name")
	}
	queue, numbers := "hfq:"+tagOf(":name")+"::name", "hfp:"+tagOf(":name")+"::name"
	for i := range 900 { // as if nothing had been heard of them for long
		text, err := do(t, c, "LINDEX", queue, strconv.Itoa(i)).ToString()
		f := strings.SplitN(text, " ", 7)
		if err != nil || len(f) != 7 {
			t.Fatalf("place %q, %v", text, err)
		}
		f[2] = strings.Repeat("0", len(f[2]))
		must(t, c, "LSET", queue, strconv.Itoa(i), strings.Join(f, " "))
		must(t, c, "HSET", numbers, f[0], strconv.Itoa(i+1))
	}
	free(t, s, ref)
	until(t, "the first that lives is told", func() bool { return h.has(driver.GrantSignal, places[900].Owner) })
	if r, err := s.Inspect(t.Context(), nameOf("name")); err != nil || len(r.Holders) != 1 || len(r.Waiters) != 99 {
		t.Errorf("%d holders, %d waiters, %v", len(r.Holders), len(r.Waiters), err)
	}
}

func TestURLs(t *testing.T) {
	server := sharedServer(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte("s3cr3t\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, server.client(t), "ACL", "SETUSER", "urls", "on", ">s3cr3t", "~*", "&*", "+@all")
	at := func(user string) string { return strings.Replace(server.url(), "//", "//"+user, 1) }
	good := []string{server.url(), server.url() + "/3", at("urls:s3cr3t@"), at("urls@") + "?password-file=" + file, server.url() + "?durable=true"}
	for _, text := range good {
		openAt(t, text)
	}
	for text, want := range map[string]driver.Kind{
		server.url() + "?speed=1":              driver.Invalid,
		server.url() + "/x":                    driver.Invalid,
		server.url() + "?durable=maybe":        driver.Invalid,
		"redis://":                             driver.Invalid,
		at("u:p@") + "?password-file=" + file:  driver.Invalid,
		at("u@") + "?password-file=/not/there": driver.Invalid,
		at("urls:wr0ng@"):                      driver.Denied,
		"redis://:wr0ng@127.0.0.1:1":           driver.Unavailable,
	} {
		_, err := openURL(t.Context(), text)
		if err == nil || classify(err) != want || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	t.Setenv(passwordVariable, "s3cr3t")
	openAt(t, at("urls@"))
}

func TestClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		class driver.Class
		warns string
	}{
		{[]string{"--appendonly", "yes", "--appendfsync", "always"}, driver.ClassC, ""},
		{[]string{"--appendonly", "yes"}, driver.ClassD, "appendfsync is everysec"},
		{nil, driver.ClassD, "appendonly is off"},
		{[]string{"--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, driver.ClassD, "maxmemory-policy is allkeys-lru"},
	} {
		p := ownServer(t, c.args...).open(t).Properties()
		if p.Class != c.class || !strings.Contains(strings.Join(p.Warnings, "; "), c.warns) || (c.warns == "") != (len(p.Warnings) == 0) {
			t.Errorf("%v: class %v, warnings %q", c.args, p.Class, p.Warnings)
		}
	}
	server := ownServer(t, "--appendonly", "yes", "--appendfsync", "always")
	must(t, server.client(t), "ACL", "SETUSER", "default", "-config")
	if p := server.open(t).Properties(); p.Class != driver.ClassD || len(p.Warnings) != 1 {
		t.Errorf("CONFIG forbidden: class %v, warnings %q", p.Class, p.Warnings)
	}
	if p := openAt(t, server.url()+"?durable=true").Properties(); p.Class != driver.ClassC {
		t.Errorf("CONFIG forbidden, vouched for: class %v, warnings %q", p.Class, p.Warnings)
	}
}
