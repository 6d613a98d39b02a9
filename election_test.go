package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// lead campaigns for a term that must be had.
func lead(tb testing.TB, e *holdfast.Election, value string) *holdfast.Term {
	tb.Helper()
	term, err := e.Campaign(tb.Context(), value)
	if err != nil {
		tb.Fatal(err)
	}
	return term
}

func resign(tb testing.TB, term *holdfast.Term) {
	tb.Helper()
	if err := term.Resign(tb.Context()); err != nil {
		tb.Error(err)
	}
}

func TestCampaignInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		first := lead(t, newSpy(t, server).client(t).Election("x"), "one")
		next := make(chan *holdfast.Term, 3)
		c := newSpy(t, server).client(t)
		for _, e := range []*holdfast.Election{c.Election("x"), newSpy(t, server).client(t).Election("x"), c.Election("x")} {
			go func() { next <- lead(t, e, "next") }()
			synctest.Wait()
		}
		last := first.Token()
		resign(t, first)
		for range 3 {
			term := <-next
			// A grant of the store each, never handed over within a client.
			if term.Token() <= last || term.Token()%256 != 0 {
				t.Errorf("token %d after %d", term.Token(), last)
			}
			last = term.Token()
			time.Sleep(time.Minute)
			if !term.Valid() || term.Check(t.Context()) != nil {
				t.Error("a term that nobody ended is over")
			}
			resign(t, term)
		}
		free(t, server)
	})
}

func TestElectionRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPlain(t, memlock.NewServer()) // keeps no values
		bare := open(t, s, nil)
		c := newSpy(t, memlock.NewServer()).client(t)
		_, err := c.Election("x").With(holdfast.ElectionOptions{TTL: time.Second, Grace: time.Second / 3}).Campaign(t.Context(), "\n")
		want(t, err, holdfast.ErrInvalid)
		for _, word := range []string{"grace", "value", "campaign"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not tell of %s", err, word)
			}
		}
		for _, o := range []holdfast.ElectionOptions{
			{TTL: time.Millisecond},
			{Grace: -1},
			{Grace: 10 * time.Second},
			{Label: "a\nb"},
			{Value: strings.Repeat("x", 1025)},
		} {
			want(t, c.Election("x").With(o).Run(t.Context(), nil), holdfast.ErrInvalid)
		}
		_, err = c.Election("").Campaign(t.Context(), "")
		want(t, err, holdfast.ErrInvalid)
		_, err = c.Election("").Leader(t.Context())
		want(t, err, holdfast.ErrInvalid)
		_, err = bare.Election("x").Campaign(t.Context(), "me")
		want(t, err, holdfast.ErrUnsupported)
		_, err = bare.Election("x").Leader(t.Context())
		want(t, err, holdfast.ErrUnsupported)
		for _, err = range bare.Election("x").Observe(t.Context()) {
			want(t, err, holdfast.ErrUnsupported)
		}
		term := lead(t, bare.Election("x"), "")
		want(t, term.Proclaim(t.Context(), "me"), holdfast.ErrUnsupported)
		resign(t, term)

		term = lead(t, c.Election("x"), "me")
		_, err = c.Election("x").Campaign(term.Context(), "")
		want(t, err, holdfast.ErrConflict)
		_, err = c.Acquire(term.Context(), "x", &holdfast.AcquireOptions{Reentrant: true})
		want(t, err, holdfast.ErrInvalid)
		_, err = term.Handle()
		want(t, err, holdfast.ErrInvalid)
		want(t, term.Proclaim(t.Context(), "\x7f"), holdfast.ErrInvalid)
		resign(t, term)
		want(t, term.Proclaim(t.Context(), "me"), holdfast.ErrReleased)
	})
}

// B144: campaigns that fail leave nothing, whatever was the matter.
func TestFailedCampaignsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		a := lead(t, newSpy(t, server).client(t).Election("x"), "")
		b := newSpy(t, server)
		candidate := b.client(t).Election("x")
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*77*time.Millisecond)
			if _, err := candidate.Campaign(ctx, "b"); err == nil {
				t.Fatal("elected beside the leader")
			}
			cancel()
		}
		c := make(chan *holdfast.Term, 1)
		go func() { c <- lead(t, newSpy(t, server).client(t).Election("x"), "c") }()
		synctest.Wait()
		begin := time.Now()
		resign(t, a)
		resign(t, <-c)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the next leader came after %v", took)
		}
		free(t, server)
	})
}

// B145: a term that is resigned with an ended context is over at once, here and
// in the store; also if the store does not answer at first.
func TestResignWithEndedContext(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			term := lead(t, s.client(t).Election("x"), "a")
			next := make(chan *holdfast.Term, 1)
			go func() { next <- lead(t, newSpy(t, server).client(t).Election("x"), "b") }()
			synctest.Wait()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			s.away.Store(away)
			begin := time.Now()
			err := term.Resign(ended)
			if term.Valid() || term.Context().Err() == nil {
				t.Error("leads after it resigned")
			}
			if (err != nil) != away {
				t.Errorf("resign: %v", err)
			}
			if away {
				time.Sleep(2 * time.Second)
				s.away.Store(false)
				if again := term.Resign(t.Context()); !errors.Is(again, err) {
					t.Errorf("resigned again: %v, at first: %v", again, err)
				}
			}
			resign(t, <-next)
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("the next leader came after %v", took)
			}
		})
	}
}

// B147: a term is as long as its own leader asked for, whatever others ask.
func TestTermsOfDifferentLengths(t *testing.T) {
	for _, ttl := range [][2]time.Duration{{6 * time.Second, time.Second}, {time.Second, 6 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			dies := lead(t, s.client(t).Election("x").With(holdfast.ElectionOptions{TTL: ttl[0]}), "a")
			s.away.Store(true)
			begin := time.Now()
			other := newSpy(t, server).client(t).Election("x").With(holdfast.ElectionOptions{TTL: ttl[1]})
			next := lead(t, other, "b")
			if dies.Valid() || dies.Context().Err() == nil {
				t.Error("two leaders")
			}
			if took := time.Since(begin); took < ttl[0]*9/10 || took > ttl[0]+time.Second {
				t.Errorf("TTL %v: the next leader came after %v", ttl[0], took)
			}
			resign(t, next)
		})
	}
}

// A candidate speaks before its term begins, and tries as long as it leads; if the
// store has forgotten it meanwhile, it is elected anew.
func TestCampaignSpeaksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		c := s.client(t)
		s.mute.Store(5)
		term := lead(t, c.Election("x"), "me")
		leader, err := c.Election("x").Leader(t.Context())
		if err != nil || leader.Value != "me" || leader.Token != term.Token() || leader.Owner != term.Owner() || leader.None() {
			t.Errorf("%+v %v", leader, err)
		}
		resign(t, term)

		s.mute.Store(1 << 30) // until the term is lost, and the next begins
		time.AfterFunc(2*time.Second, func() {
			s.away.Store(true)
			time.Sleep(holdfast.DefaultTTL)
			s.away.Store(false)
			s.mute.Store(0)
		})
		again := lead(t, c.Election("x"), "me")
		if again.Token() <= term.Token() || !again.Valid() {
			t.Errorf("token %d after %d", again.Token(), term.Token())
		}
		resign(t, again)

		s.mute.Store(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Election("x").Campaign(ctx, "me"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("campaign without a voice: %v", err)
		}
		synctest.Wait()
		free(t, server)
	})
}

// B152: an observer sees each leader, each value and nobody, in order, and at
// once who leads when it comes; with a store that tells of changes and with one that
// must be asked.
func TestObserve(t *testing.T) {
	for _, asks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			s.unwatched = asks
			ctx, cancel := context.WithCancel(t.Context())
			var seen []string
			done := make(chan struct{})
			c := s.client(t)
			go func() {
				defer close(done)
				for l, err := range c.Election("x").Observe(ctx) {
					switch {
					case err != nil:
						seen = append(seen, "?")
					case l.None():
						seen = append(seen, "-")
					default:
						seen = append(seen, l.Value)
					}
				}
			}()
			pause := func() { time.Sleep(time.Second); synctest.Wait() }
			expect := []string{"-"}
			pause()
			for _, name := range []string{"a", "b"} {
				term := lead(t, newSpy(t, server).client(t).Election("x"), name)
				pause()
				if err := term.Proclaim(t.Context(), name+"2"); err != nil {
					t.Error(err)
				}
				pause()
				resign(t, term)
				pause()
				expect = append(expect, name, name+"2", "-")
			}
			term := lead(t, newSpy(t, server).client(t).Election("x"), "c")
			pause()
			s.away.Store(true) // who leads is not known then
			pause()
			time.Sleep(11 * time.Second) // also where the watch is silent
			s.away.Store(false)
			pause()
			expect = append(expect, "c", "?", "c")
			for l, err := range c.Election("x").Observe(ctx) { // a latecomer is told at once
				if err != nil || l.Value != "c" || l.Token != term.Token() {
					t.Errorf("a latecomer sees %+v", l)
				}
				break
			}
			cancel()
			<-done
			seen = slices.DeleteFunc(seen, func(v string) bool { return v == "" }) // the moment before a leader speaks
			if !slices.Equal(seen, expect) {
				t.Errorf("asks %v: seen %q, want %q", asks, seen, expect)
			}
			resign(t, term)
		})
	}
}

// An observer that takes its time delays nobody, and then sees the latest.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		leads := newSpy(t, server).client(t).Election("x")
		term := lead(t, leads, "0")
		round, proceed := 0, make(chan struct{})
		done := make(chan struct{})
		watches := newSpy(t, server).client(t).Election("x")
		go func() {
			defer close(done)
			for l, err := range watches.Observe(t.Context()) {
				if err != nil {
					t.Error(err)
				}
				if want := []string{"0", "99", "199"}[round]; l.Value != want {
					t.Errorf("round %d: sees %q, want %q", round, l.Value, want)
				}
				if round++; round == 3 {
					return
				}
				<-proceed
			}
		}()
		synctest.Wait()
		for i := range 200 {
			if err := term.Proclaim(t.Context(), []string{"a", "99", "199"}[min(i/99, 1)+i/199]); err != nil {
				t.Error(err)
			}
			if i == 99 || i == 199 {
				proceed <- struct{}{}
				synctest.Wait()
			}
		}
		<-done
		resign(t, term)
	})
}

// Nothing older follows what was seen: where an old entry still shows for a
// moment, or a replica lags.
func TestObserverIgnoresTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		s.unwatched = true
		var seen []string
		c := s.client(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for l, err := range c.Election("x").Observe(t.Context()) {
				if err != nil {
					return // closed
				}
				seen = append(seen, l.Value)
			}
		}()
		term := lead(t, newSpy(t, server).client(t).Election("x"), "a")
		time.Sleep(time.Second)
		old, err := s.memory.Leader(t.Context(), name("x"))
		if err != nil || old == nil {
			t.Fatal(old, err)
		}
		resign(t, term)
		time.Sleep(time.Second)
		s.old.Store(old)
		time.Sleep(8 * time.Second)
		s.old.Store(nil)
		time.Sleep(time.Second)
		term = lead(t, newSpy(t, server).client(t).Election("x"), "b")
		time.Sleep(time.Second)
		s.old.Store(old)
		time.Sleep(8 * time.Second)
		resign(t, term)
		_ = c.Close()
		<-done
		seen = slices.Compact(seen)
		if got := strings.Join(seen, " "); got != "a  b" && got != " a  b" {
			t.Errorf("seen %q", got)
		}
	})
}

// A store that was restored from a backup shows smaller tokens for good: they are
// believed in the end.
func TestObserverOfARestoredStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		term := lead(t, newSpy(t, server).client(t).Election("x"), "a")
		old, err := s.memory.Leader(t.Context(), name("x"))
		if err != nil || old == nil {
			t.Fatal(old, err)
		}
		resign(t, term)
		term = lead(t, newSpy(t, server).client(t).Election("x"), "b")
		var seen []string
		for l, err := range s.client(t).Election("x").Observe(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if seen = append(seen, l.Value); l.Value == "a" {
				break
			}
			s.old.Store(old)
		}
		if !slices.Equal(seen, []string{"b", "a"}) {
			t.Errorf("seen %q", seen)
		}
		resign(t, term)
	})
}

// However many observe an election through one client, the store is asked as if one
// did, and each is told all; those who come and go disturb nobody.
func TestObserversShare(t *testing.T) {
	for _, asks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			s.unwatched = asks
			c := s.client(t)
			e := c.Election("x")
			var sees [50]atomic.Int64
			var told sync.WaitGroup
			for i := range sees {
				told.Go(func() {
					for l, err := range e.Observe(t.Context()) {
						if err != nil {
							return // closed
						}
						sees[i].Add(1)
						if i%5 == 0 && !l.None() {
							return
						}
					}
				})
			}
			synctest.Wait()
			before, watches := s.looks.Load(), s.watches.Load()
			time.Sleep(10 * time.Second)
			looks := s.looks.Load() - before
			if most := map[bool]int64{false: 2, true: 150}[asks]; looks > most {
				t.Errorf("asks %t: %d looks in 10 s", asks, looks)
			}
			if !asks && watches != 1 {
				t.Errorf("%d watches", watches)
			}
			term := lead(t, newSpy(t, server).client(t).Election("x"), "")
			time.Sleep(time.Second)
			resign(t, term)
			time.Sleep(time.Second)
			for i := range sees {
				if n, want := sees[i].Load(), map[bool]int64{true: 2, false: 3}[i%5 == 0]; n != want {
					t.Errorf("asks %t: observer %d was told %d times, want %d", asks, i, n, want)
				}
			}
			_ = c.Close()
			told.Wait()
		})
	}
}

// A client that is closed ends the loops of its observers, and says so.
func TestCloseEndsObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSpy(t, memlock.NewServer()).client(t)
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, last = range c.Election("x").Observe(t.Context()) { //nolint:revive // the last counts
			}
			ended <- last
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		want(t, <-ended, holdfast.ErrClosed)
	})
}
