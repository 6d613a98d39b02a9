package zklock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/zktest"
)

// storm is clients that take turns on one name, while something is done to the
// servers. Whoever gets in sees that nobody who was in before believes that he
// still is, and that tokens grow.
type storm struct {
	tb    testing.TB
	name  string
	turns atomic.Int64
	lost  atomic.Int64
	stop  chan struct{}
	wg    sync.WaitGroup

	mu   sync.Mutex
	last *holdfast.Lease
}

func newStorm(tb testing.TB, ttl time.Duration, urls ...string) *storm {
	tb.Helper()
	s := &storm{tb: tb, name: tb.Name(), stop: make(chan struct{})}
	for _, at := range urls {
		c := user(tb, at, ttl)
		for range 2 {
			s.wg.Go(func() { s.takeTurns(c) })
		}
	}
	tb.Cleanup(s.end)
	s.goesOn("before anything happens")
	return s
}

func (s *storm) takeTurns(c *holdfast.Client) {
	ctx := s.tb.Context()
	for !closed(s.stop) {
		l, err := c.Acquire(ctx, s.name, nil)
		if err != nil {
			continue
		}
		s.visit(l)
		if err := l.Release(ctx); errors.Is(err, holdfast.ErrLost) {
			s.lost.Add(1)
		}
	}
}

func (s *storm) visit(l *holdfast.Lease) {
	s.mu.Lock()
	if before := s.last; before != nil && before.Valid() {
		s.tb.Errorf("two hold the name: tokens %d and %d", before.Token(), l.Token())
	} else if before != nil && before.Token() >= l.Token() {
		s.tb.Errorf("token %d after %d", l.Token(), before.Token())
	}
	s.last = l
	s.mu.Unlock()
	select {
	case <-time.After(rand.N(3 * time.Millisecond)):
	case <-l.Context().Done():
	}
	s.turns.Add(1)
}

// goesOn waits for turns after this moment.
func (s *storm) goesOn(when string) {
	s.tb.Helper()
	from := s.turns.Load()
	until(s.tb, "turns go on "+when, func() bool { return s.turns.Load() > from+20 })
}

func (s *storm) end() {
	if !closed(s.stop) {
		close(s.stop)
	}
	s.wg.Wait()
}

// A server that is killed is unavailable; holds and places are there when it is
// back in time, and what was under way has left nothing.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	c := server.open(t)
	ref, place := c.hold(t, "name"), c.enqueue(t, "name")
	server.Kill()
	until(t, "the outage is told", func() bool {
		_, err := c.Acquire(t.Context(), request("other"))
		return err != nil && c.Classify(err) == driver.Unavailable
	})
	_, released := c.Release(t.Context(), &driver.ReleaseRequest{Ref: c.strange("name")})
	for what, err := range map[string]error{
		"renew": c.renew(t, ref).Err, "beat": c.Beat(t.Context(), []driver.Ref{place})[0].Err, "release": released,
	} {
		if err == nil || c.Classify(err) != driver.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "a renewal", func() bool { return c.renew(t, ref).Err == nil })
	if res := c.renew(t, ref); res.Status == driver.Renewed { // else the start took longer than the session
		c.free(t, ref)
		c.told(t, place)
	}
	c.free(t, c.hold(t, "other"))
}

// strange is a grant that nobody has.
func (c *client) strange(name string) driver.Ref {
	req := request(name)
	return driver.Ref{Name: req.Name, Owner: req.Owner, Token: 1}
}

// A server that is killed or stopped at any moment lets no two in, and everything
// goes on by itself.
func TestServerStorm(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := newStorm(t, testTTL, server.url(), server.url(), server.url())
	rounds := 2
	if full() {
		rounds = 10
	}
	for range rounds {
		if err := server.restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.goesOn("after a restart")
		server.signal(t, syscall.SIGSTOP)
		<-time.After(300 * time.Millisecond)
		server.signal(t, syscall.SIGCONT)
		s.goesOn("after a pause")
	}
	s.end()
}

// A server that stands still for longer than all sessions: every trust is over
// before it wakes, and nobody comes back to life.
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	c := user(t, server.url(), shortTTL)
	l := take(t, c, t.Name(), nil)
	server.signal(t, syscall.SIGSTOP)
	<-l.Context().Done()
	if cause := context.Cause(l.Context()); !errors.Is(cause, holdfast.ErrLost) {
		t.Errorf("cause: %v", cause)
	}
	<-time.After(sessionFor(shortTTL))
	server.signal(t, syscall.SIGCONT)
	next := take(t, user(t, server.url(), testTTL), t.Name(), nil)
	if l.Valid() || next.Token() <= l.Token() {
		t.Errorf("valid: %v, token %d after %d", l.Valid(), next.Token(), l.Token())
	}
	give(t, next)
	give(t, take(t, c, t.Name(), nil))
}

// After a session was lost in an outage its holder has lost, whatever the server
// still shows; and a hold that is deleted by hand is told. Report B056.
func TestOldNodeIsNoHold(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	a := user(t, server.url(), shortTTL)
	l := take(t, a, "leader", nil)
	server.Kill()
	<-l.Context().Done()
	<-time.After(sessionFor(shortTTL)) // since the last word
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	b := user(t, server.url(), testTTL)
	next := take(t, b, "leader", nil) // it has closed the session that lives on in the server's data
	if l.Valid() {
		t.Error("the old holder believes")
	}
	give(t, next)

	c := server.open(t)
	locks, err := holdfast.New(c.store, &holdfast.Options{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	l = take(t, locks, "leader", nil)
	follower := make(chan *holdfast.Lease, 1)
	go func() {
		won, err := b.Acquire(soon(t), "leader", nil)
		if err != nil {
			t.Error(err)
		}
		follower <- won
	}()
	look := server.open(t)
	until(t, "it is watched", func() bool { return guarded(c) })
	look.deleteFirst(t, "leader")
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
		t.Error("the holder was not told")
	}
	give(t, <-follower)
}

func guarded(c *client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.guarded {
			return true
		}
	}
	return false
}

// deleteFirst does by hand what nobody should.
func (c *client) deleteFirst(tb testing.TB, name string) {
	tb.Helper()
	v := c.children(tb, name)
	if len(v.children) == 0 {
		tb.Fatal("no node")
	}
	if ok, err := c.deleteExact(tb.Context(), c.present(tb), c.dir(nameOf(name).Key)+"/"+v.children[0].name, 0); !ok || err != nil {
		tb.Fatal(ok, err)
	}
}

func (c *client) present(tb testing.TB) *link {
	tb.Helper()
	l, err := c.session(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// One of three down, two of three, the leader killed, stopped and restarted.
func TestEnsembleStorm(t *testing.T) {
	t.Parallel()
	onEnsembles(t, ensembleStorm)
}

// onEnsembles runs a test on three servers, and with HOLDFAST_FULL on three of a newer
// version too.
func onEnsembles(t *testing.T, test func(*testing.T, ensemble)) {
	t.Helper()
	t.Run("3.8", func(t *testing.T) { test(t, newEnsemble(t, zktest.Debian)) })
	if full() {
		t.Run("3.9", func(t *testing.T) { test(t, newEnsemble(t, zktest.Newer)) })
	}
}

func ensembleStorm(t *testing.T, e ensemble) {
	t.Helper()
	s := newStorm(t, testTTL, e.url(), e.url(), e.url())
	_, followers := e.leader(t)

	followers[0].Kill()
	s.goesOn("with one of three down")
	followers[1].Kill()
	c, err := openFor(t.Context(), e.url(), testTTL)
	if err == nil {
		t.Error("a session without a majority")
		_ = c.Close()
	}
	for _, f := range followers {
		if err := f.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	s.goesOn("after two of three came back")

	rounds := 1
	if full() {
		rounds = 5
	}
	for range rounds {
		leader, _ := e.leader(t)
		leader.Kill()
		s.goesOn("after the leader was killed")
		if err := leader.Begin(); err != nil {
			t.Fatal(err)
		}
		leader, _ = e.leader(t)
		leader.signal(t, syscall.SIGSTOP)
		s.goesOn("while the leader stands still")
		leader.signal(t, syscall.SIGCONT)
		s.goesOn("after it goes on")
	}
	s.end()
}

// The window: whatever happens to the holder, its server or the leader, the next
// one is let in only when the holder does not believe any more. Each round begins
// at another moment of the session's rhythm.
func TestTrustEndsBeforeTheSession(t *testing.T) {
	t.Parallel()
	onEnsembles(t, func(t *testing.T, e ensemble) {
		t.Helper()
		rounds := 1
		if full() {
			rounds = 10
		}
		for round := range rounds {
			for _, what := range []string{"a partition", "a partition and the end of its server", "a partition and the end of the leader", "a leader that stands still"} {
				t.Run(fmt.Sprintf("%s %d", what, round), func(t *testing.T) { trustEnds(t, e, what) })
			}
		}
	})
}

func trustEnds(t *testing.T, e ensemble, what string) {
	t.Helper()
	leader, followers := e.leader(t)
	p := newProxy(t, followers[0])
	a, b := user(t, p.url(), 3*time.Second), user(t, e.url(), testTTL)
	l := take(t, a, "name", nil)
	<-time.After(rand.N(2 * time.Second))
	next := make(chan *holdfast.Lease, 1)
	go func() {
		won, err := b.Acquire(soon(t), "name", nil)
		if err != nil {
			t.Error(err)
		}
		next <- won
	}()
	revive := func() {}
	switch what {
	case "a partition":
		p.freeze()
	case "a partition and the end of its server":
		p.freeze()
		followers[0].Kill()
		revive = func() { restarted(t, followers[0]) }
	case "a partition and the end of the leader":
		p.freeze()
		leader.Kill()
		revive = func() { restarted(t, leader) }
	case "a leader that stands still":
		p.freeze() // and the others elect another one
		leader.signal(t, syscall.SIGSTOP)
		revive = func() { leader.signal(t, syscall.SIGCONT) }
	}
	won := <-next
	if won == nil {
		t.Fatal("nobody got in")
	}
	deadline, _ := l.Deadline()
	if l.Valid() {
		t.Errorf("the former holder believes for %v yet", time.Until(deadline))
	}
	select {
	case <-l.Context().Done():
	default:
		t.Error("the former holder was not told")
	}
	give(t, won)
	revive()
	p.heal()
	_, _ = e.leader(t)
}

func restarted(t *testing.T, s *server) {
	t.Helper()
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
}

// Without a majority nothing is proven: a leader whose followers stand still
// answers reads, and no renewal.
func TestProofNeedsAMajority(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zktest.Debian)
	leader, followers := e.leader(t)
	c := openAt(t, leader.url(), testTTL)
	ref := c.hold(t, "name")
	if res := c.renew(t, ref); res.Status != driver.Renewed {
		t.Fatalf("renewal: %+v", res)
	}
	for _, f := range followers {
		f.signal(t, syscall.SIGSTOP)
	}
	if n := len(c.children(t, "name").children); n != 1 {
		t.Errorf("%d nodes", n)
	}
	// The same leader answers even a sync: no proof for us.
	if h, err := c.Leader(t.Context(), nameOf("name")); err != nil || h == nil {
		t.Errorf("a leader without a majority answers no sync: %+v, %v", h, err)
	}
	before := c.present(t).zk.Proof()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if res := c.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: testTTL}})[0]; res.Err == nil {
		t.Errorf("renewal without a majority: %+v", res)
	}
	if after := c.present(t).zk.Proof(); after != before {
		t.Errorf("proven %v later without a majority", after.Sub(before))
	}
	for _, f := range followers {
		f.signal(t, syscall.SIGCONT)
	}
}

// What one client has done another sees at once, whichever server it asks: a break of
// a hold that was just granted, and who holds what.
func TestServersThatLag(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zktest.Debian)
	leader, followers := e.leader(t)
	a := openAt(t, leader.url(), testTTL)
	rounds := 200
	if full() {
		rounds = 2000
	}
	for _, f := range followers {
		b := openAt(t, f.url(), testTTL)
		for i := range rounds {
			name := fmt.Sprint("name", i%10)
			ref := a.hold(t, name)
			if i%2 == 0 {
				seen := false
				for r, err := range b.List(t.Context(), "") {
					if err != nil {
						t.Fatal(err)
					}
					seen = seen || r.Name == name
				}
				if !seen {
					t.Fatalf("round %d: not listed", i)
				}
			}
			status, err := b.Break(t.Context(), &driver.BreakRequest{Name: ref.Name, Token: ref.Token, Reason: "test", Force: true})
			if status != driver.Freed {
				t.Fatalf("round %d: break: %d, %v", i, status, err)
			}
		}
	}
}
