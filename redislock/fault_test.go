package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A client that speaks RESP2 waits on a connection of its own.
func TestOldProtocol(t *testing.T) {
	t.Parallel()
	for _, option := range []rueidis.ClientOption{
		{InitAddress: []string{ownServer(t).addr()}, ForceSingleClient: true},
		{InitAddress: []string{ownCluster(t, redistest.Default, false).Masters[0].Addr()}},
	} {
		option.AlwaysRESP2, option.DisableCache = true, true
		client, err := rueidis.NewClient(option)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		opened, err := New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		s := opened.(*store) //nolint:errcheck // New makes no other
		var h heard
		h.listen(s)
		ref, place := hold(t, s, t.Name()), enqueue(t, s, t.Name())
		if r, err := s.Inspect(t.Context(), ref.Name); err != nil || len(r.Holders) != 1 || len(r.Waiters) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		free(t, s, ref)
		until(t, "the grant is told", func() bool { return h.has(driver.GrantSignal, place.Owner) })
	}
}

// losePlace takes a place whose answer is lost: it is there.
func losePlace(t *testing.T, p *redistest.Proxy, s *store, n driver.Name) {
	t.Helper()
	waiter := request("")
	waiter.Name, waiter.Queue = n, true
	lost := p.LoseAnswerTo(acquireScript.sha)
	_, err := s.Acquire(t.Context(), waiter)
	<-lost
	if kind := s.Classify(err); err == nil || kind != driver.Indeterminate {
		t.Errorf("a lost place is %v: %v", kind, err)
	}
	place := driver.Ref{Name: n, Owner: waiter.Owner, Mode: waiter.Mode}
	if beat := retry(t, s, func() (driver.BeatResult, error) {
		beat := s.Beat(t.Context(), []driver.Ref{place})[0]
		return beat, beat.Err
	}); beat.Status != driver.Waiting {
		t.Errorf("the lost place: %+v", beat)
	}
	free(t, s, place)
}

// An answer that is lost is neither a success nor a refusal, and nothing is sent
// again by itself: the server handled each request once.
func TestLostAnswersAreIndeterminate(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := ownProxy(t, server)
	s, other := openAt(t, p.URL()), server.open(t)
	ctx := t.Context()

	req := request(t.Name())
	lost := p.LoseAnswerTo(acquireScript.sha)
	_, err := s.Acquire(ctx, req)
	<-lost
	if kind := s.Classify(err); kind != driver.Indeterminate {
		t.Errorf("a lost grant is %v: %v", kind, err)
	}
	if _, status := try(t, other, t.Name()); status != driver.Held {
		t.Errorf("the lost grant is not there: status %d", status)
	}
	again := retry(t, s, func() (driver.AcquireResult, error) { return s.Acquire(ctx, req) })
	if again.Status != driver.Granted {
		t.Fatalf("the same owner again: status %d", again.Status)
	}
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Token: again.Grant.Token}

	losePlace(t, p, s, req.Name)

	lost = p.LoseAnswerTo(renewScript.sha)
	res := s.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: req.TTL}})[0]
	<-lost
	if kind := s.Classify(res.Err); res.Err == nil || kind != driver.Indeterminate {
		t.Errorf("a lost renewal is %v: %+v", kind, res)
	}
	lost = p.LoseAnswerTo(releaseScript.sha)
	end := &driver.ReleaseRequest{Ref: ref}
	ok := retry(t, s, func() (bool, error) {
		released, err := s.Release(ctx, end)
		select {
		case <-lost:
		default:
			if err == nil {
				t.Errorf("a release without its answer says %t", released)
			}
		}
		return released, err
	})
	if ok {
		t.Error("the repeated release ended something")
	}
	if h, status := try(t, other, t.Name()); status != driver.Granted {
		t.Errorf("after the lost release: status %d", status)
	} else {
		free(t, other, h)
	}
}

// Answers that come late are no grant, no loss and no release; what they did can be asked
// for, and repeated.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := ownProxy(t, server)
	s, other := openAt(t, p.URL()), server.open(t)
	late := func(f func(ctx context.Context) error) {
		t.Helper()
		p.Late(300 * time.Millisecond)
		defer p.Late(0)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if err := f(ctx); err == nil || s.Classify(err) != driver.Indeterminate {
			t.Errorf("%v is %v", err, s.Classify(err))
		}
	}
	req := request(t.Name())
	late(func(ctx context.Context) error { _, err := s.Acquire(ctx, req); return err })
	until(t, "it was granted", func() bool { _, status := try(t, other, t.Name()); return status == driver.Held })
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}
	late(func(ctx context.Context) error {
		return s.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0].Err
	})
	waiter := request(t.Name())
	waiter.Queue = true
	place := driver.Ref{Name: req.Name, Owner: waiter.Owner, Mode: req.Mode}
	late(func(ctx context.Context) error { _, err := s.Acquire(ctx, waiter); return err })
	late(func(ctx context.Context) error { return s.Beat(ctx, []driver.Ref{place})[0].Err })
	late(func(ctx context.Context) error {
		_, err := s.Release(ctx, &driver.ReleaseRequest{Ref: ref})
		return err
	})
	until(t, "the place was granted", func() bool { return s.Beat(t.Context(), []driver.Ref{place})[0].Status == driver.Granted })
	free(t, s, place)
}

// A request that the server gets twice does once.
func TestDoubledRequests(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := ownProxy(t, server)
	s, other := openAt(t, p.URL()), server.open(t)
	done := p.Double(t.Name())
	ref, status := try(t, s, t.Name())
	<-done
	if status != driver.Granted {
		t.Fatalf("status %d", status)
	}
	done = p.Double(t.Name())
	place := enqueue(t, s, t.Name())
	<-done
	next := enqueue(t, other, t.Name())
	if r, err := other.Inspect(t.Context(), ref.Name); err != nil || len(r.Holders) != 1 || len(r.Waiters) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	done = p.Double(t.Name())
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]; res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	<-done
	done = p.Double(t.Name())
	if _, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref}); err != nil { // the second time it was not there
		t.Fatal(err)
	}
	<-done
	if res := s.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Granted {
		t.Errorf("the first place: %+v", res)
	}
	if res := other.Beat(t.Context(), []driver.Ref{next})[0]; res.Status != driver.Waiting {
		t.Errorf("the second place: %+v", res)
	}
	free(t, s, place)
	free(t, other, next)
}

func ownProxy(tb testing.TB, to *server) *redistest.Proxy {
	tb.Helper()
	p, err := redistest.StartProxy(to.Server)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// bent starts a server with a clock that can be set.
func bent(tb testing.TB) (*server, *redistest.Clock) {
	tb.Helper()
	clock, err := redistest.NewClock()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(clock.Remove)
	s, err := clock.Start(redistest.Default)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return &server{s}, clock
}

// A clock that is set forward ends leases early: the name is granted again, with a
// larger token, and the holder learns it at its next renewal. This is why one
// server is class C at best.
func TestServerClockForward(t *testing.T) {
	t.Parallel()
	server, clock := bent(t)
	s, other := server.open(t), server.open(t)
	first := hold(t, s, "name")
	if err := clock.Set(2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	second := hold(t, other, "name")
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: first, TTL: time.Minute}})[0]; res.Status != driver.Lost {
		t.Errorf("renewal: %+v", res)
	}
}

// A clock that steps is warned of, whichever way, by a client that renews.
func TestServerClockSteps(t *testing.T) {
	t.Parallel()
	server, clock := bent(t)
	s := server.open(t)
	warned := func() string { return strings.Join(s.Properties().Warnings, "; ") }
	look := func() {
		s.clocks.mu.Lock()
		s.clocks.due = 0
		s.clocks.mu.Unlock()
		s.Renew(t.Context(), []driver.RenewRequest{{Ref: driver.Ref{Name: nameOf("name")}}})
	}
	for range 3 {
		look()
	}
	if text := warned(); strings.Contains(text, "clock") {
		t.Errorf("nothing has stepped: %s", text)
	}
	for where, ahead := range map[string]time.Duration{"forward": time.Minute, "back": -time.Minute} {
		if err := clock.Set(ahead); err != nil {
			t.Fatal(err)
		}
		until(t, "a warning", func() bool {
			look()
			return strings.Contains(warned(), "the server's clock was set "+where)
		})
	}
}

// A clock that is set back lets nobody in early, leases last longer, and tokens
// grow nevertheless.
func TestServerClockBack(t *testing.T) {
	t.Parallel()
	server, clock := bent(t)
	s, other := server.open(t), server.open(t)
	first, place := hold(t, s, "name"), enqueue(t, other, "name")
	if err := clock.Set(-2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: first, TTL: time.Minute}})[0]; res.Status != driver.Renewed || res.Window < time.Minute {
		t.Errorf("renewal: %+v", res)
	}
	if _, status := try(t, other, "name"); status != driver.Held {
		t.Errorf("status %d", status)
	}
	free(t, s, first)
	res := other.Beat(t.Context(), []driver.Ref{place})[0]
	if res.Status != driver.Granted || res.Grant.Token <= first.Token {
		t.Errorf("beat: %+v after token %d", res, first.Token)
	}
	free(t, other, place)
	last := first.Token
	for range 100 {
		ref := hold(t, s, "name")
		if ref.Token <= last {
			t.Fatalf("token %d after %d", ref.Token, last)
		}
		last = ref.Token
		free(t, s, ref)
	}
}

// A server that evicts loses locks when its memory is full: two may hold a name. It is
// warned of at the beginning, and the holder learns it.
func TestEviction(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
	s, c := server.open(t), server.client(t)
	if p := s.Properties(); p.Class != driver.ClassD || !strings.Contains(strings.Join(p.Warnings, " "), "maxmemory-policy is allkeys-lru") {
		t.Errorf("class %v, %q", p.Class, p.Warnings)
	}
	ref := hold(t, s, "name")
	filler := strings.Repeat("x", 10_000)
	for i := 0; ; i++ {
		if n, err := do(t, c, "EXISTS", recordKey(tagOf(ref.Name.Key), ref.Name.Key)).AsInt64(); err != nil || n == 0 {
			break
		}
		must(t, c, "SET", "filler"+time.Duration(i).String(), filler)
	}
	second, status := try(t, s, "name")
	if status != driver.Granted || second.Token <= ref.Token {
		t.Errorf("status %d, token %d after %d", status, second.Token, ref.Token)
	}
	if res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0]; res.Status != driver.Lost {
		t.Errorf("renewal: %+v", res)
	}
}
