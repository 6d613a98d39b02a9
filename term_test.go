package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// runs is [holdfast.Election.Run], or something that does it wrong.
type runs func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error

func asItIs(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
	return e.Run(ctx, fn)
}

// stage is what candidates of one election do, and what is wrong with it.
type stage struct {
	t      *testing.T
	server *memlock.Server
	run    runs

	running sync.WaitGroup

	mu     sync.Mutex
	inside string // who works now
	tokens map[uint64]bool
	last   uint64
	terms  []string // who worked, in order
	wrong  []string
}

func (s *stage) bad(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *stage) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.terms)
}

// works is the work of a leader; until says when it ends.
func (s *stage) works(who string, until func(ctx context.Context, t *holdfast.Term) error) func(context.Context, *holdfast.Term) error {
	return func(ctx context.Context, t *holdfast.Term) error {
		s.mu.Lock()
		if s.inside != "" {
			s.wrong = append(s.wrong, who+" works beside "+s.inside)
		}
		if s.tokens[t.Token()] || t.Token() < s.last {
			s.wrong = append(s.wrong, fmt.Sprintf("%s has token %d after %d", who, t.Token(), s.last))
		}
		if ctx.Err() != nil || !t.Valid() {
			s.wrong = append(s.wrong, who+" begins in a term that is over")
		}
		if left, ok := t.Deadline(); ok && time.Until(left) < holdfast.DefaultTTL*9/10 {
			s.wrong = append(s.wrong, fmt.Sprintf("%s begins with %v left", who, time.Until(left)))
		}
		s.inside, s.last, s.tokens[t.Token()] = who, t.Token(), true
		s.terms = append(s.terms, who)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.inside == who {
				s.inside = ""
			}
		}()
		return until(ctx, t)
	}
}

// stopping works until it is called off, and takes a while to stop.
func stopping(takes time.Duration) func(context.Context, *holdfast.Term) error {
	return func(ctx context.Context, _ *holdfast.Term) error {
		<-ctx.Done()
		time.Sleep(takes)
		return nil
	}
}

// candidate runs until ctx ends.
func (s *stage) candidate(ctx context.Context, e *holdfast.Election, who string, until func(context.Context, *holdfast.Term) error) <-chan error {
	done := make(chan error, 1)
	s.running.Go(func() { done <- s.run(ctx, e, s.works(who, until)) })
	synctest.Wait()
	return done
}

// election is that of a client of its own.
func (s *stage) election() *holdfast.Election { return newSpy(s.t, s.server).client(s.t).Election("x") }

// scenes are what Run must get right, each with those who get it wrong.
var scenes = []struct {
	name  string
	kills []string
	play  func(ctx context.Context, s *stage)
}{
	{"called off", []string{"does not wait for the work", "the lease's context"}, func(ctx context.Context, s *stage) {
		first, stop := context.WithCancel(ctx)
		a := s.candidate(first, s.election(), "a", stopping(2*time.Minute)) // longer than a TTL
		s.candidate(ctx, s.election(), "b", stopping(0))
		time.Sleep(time.Minute)
		stop()
		if err := <-a; !errors.Is(err, context.Canceled) {
			s.bad("a: %v", err)
		}
		time.Sleep(time.Minute)
	}},
	{"cut off", []string{"does not wait for the work", "the lease's context"}, func(ctx context.Context, s *stage) {
		spy := newSpy(s.t, s.server)
		const grace = holdfast.DefaultTTL / 6
		cutOff := make(chan struct{})
		s.candidate(ctx, spy.client(s.t).Election("x"), "a", func(ctx context.Context, t *holdfast.Term) error {
			<-cutOff
			deadline, _ := t.Deadline()
			<-ctx.Done()
			if left := time.Until(deadline); left < grace-50*time.Millisecond || left > grace+50*time.Millisecond {
				s.bad("called off %v before the deadline", left)
			}
			if cause := context.Cause(ctx); !errors.Is(cause, holdfast.ErrLost) {
				s.bad("called off because of %v", cause)
			}
			time.Sleep(grace - 100*time.Millisecond)
			return nil
		})
		s.candidate(ctx, s.election(), "b", stopping(0))
		time.Sleep(time.Minute + time.Second)
		spy.away.Store(true)
		close(cutOff)
		time.Sleep(time.Minute)
		spy.away.Store(false)
		time.Sleep(time.Minute)
	}},
	{"failing", []string{"no pause", "one term for all"}, func(ctx context.Context, s *stage) {
		var at []time.Time
		a := s.candidate(ctx, s.election(), "a", func(context.Context, *holdfast.Term) error {
			switch at = append(at, time.Now()); {
			case len(at) < 9:
				return errors.New("not today")
			case len(at) == 9:
				time.Sleep(time.Minute)
				return errors.New("not for long")
			case len(at) == 10:
				return errors.New("begins anew")
			}
			return nil
		})
		if err := <-a; err != nil {
			s.bad("done, and yet: %v", err)
		}
		for i, most := range []float64{1, 2, 4, 8, 16, 30, 30, 30, 61, 2} {
			if pause := at[i+1].Sub(at[i]).Seconds(); i != 8 && (pause < most/2 || pause > most+1) {
				s.bad("pause %d: %v s", i, pause)
			}
		}
	}},
	{"done", []string{"nil goes on", "keeps the term"}, func(ctx context.Context, s *stage) {
		a := s.candidate(ctx, s.election(), "a", func(context.Context, *holdfast.Term) error { return nil })
		b := s.candidate(ctx, s.election(), "b", func(context.Context, *holdfast.Term) error { return nil })
		time.Sleep(10 * time.Second)
		for _, done := range []<-chan error{a, b} {
			select {
			case err := <-done:
				if err != nil {
					s.bad("done, and yet: %v", err)
				}
			default:
				s.bad("done, and goes on")
			}
		}
		if terms := s.order(); len(terms) != 2 {
			s.bad("terms of %v", terms)
		}
	}},
	{"over the grace", []string{"does not wait for the work"}, func(ctx context.Context, s *stage) {
		tale := &story{}
		spy := newSpy(s.t, s.server)
		c := open(s.t, spy, &holdfast.Options{Observe: tale.observe})
		// Two candidates of one client: the second must not begin while the first
		// goes on, although the store lets it.
		s.candidate(ctx, c.Election("x"), "a", stopping(10*time.Minute))
		s.candidate(ctx, c.Election("x"), "a2", stopping(0))
		time.Sleep(time.Second)
		spy.away.Store(true)
		time.Sleep(time.Minute)
		spy.away.Store(false)
		time.Sleep(20 * time.Minute)
		overran := tale.count(holdfast.EventOverran)
		if overran != 1 {
			s.bad("told %d times of work that goes on", overran)
		}
		if terms := s.order(); len(terms) < 2 {
			s.bad("nobody led again: %v", terms)
		}
	}},
	{"closed", []string{"the lease's context", "does not wait for the work"}, func(ctx context.Context, s *stage) {
		c := newSpy(s.t, s.server).client(s.t)
		a := s.candidate(ctx, c.Election("x"), "a", stopping(3*time.Second))
		s.candidate(ctx, s.election(), "b", stopping(0))
		_ = c.Close()
		if err := <-a; !errors.Is(err, holdfast.ErrClosed) {
			s.bad("a: %v", err)
		}
		time.Sleep(time.Minute)
		if terms := s.order(); len(terms) != 2 {
			s.bad("terms of %v", terms)
		}
	}},
	{"rolling restart", []string{"does not wait for the work"}, func(ctx context.Context, s *stage) {
		stops := map[string]func(){}
		ended := map[string]<-chan error{}
		var mu sync.Mutex
		var left time.Time
		var gap time.Duration
		join := func(who string) {
			own, stop := context.WithCancel(ctx)
			stops[who] = stop
			ended[who] = s.candidate(own, s.election(), who, func(ctx context.Context, _ *holdfast.Term) error {
				mu.Lock()
				if !left.IsZero() {
					gap = max(gap, time.Since(left))
				}
				mu.Unlock()
				<-ctx.Done()
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				left = time.Now()
				return nil
			})
		}
		for i := range 5 {
			join(strconv.Itoa(i))
		}
		for i := range 10 {
			time.Sleep(time.Minute)
			terms := s.order()
			now := terms[len(terms)-1]
			stops[now]()
			if err := <-ended[now]; !errors.Is(err, context.Canceled) {
				s.bad("%s: %v", now, err)
			}
			join(strconv.Itoa(5 + i))
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if terms := s.order(); len(terms) != 11 || gap > 0 {
			s.bad("terms of %v; nobody led for %v", terms, gap)
		}
	}},
	{"broken", []string{"does not wait for the work"}, func(ctx context.Context, s *stage) {
		s.candidate(ctx, s.election(), "a", stopping(2*time.Second))
		s.candidate(ctx, s.election(), "b", stopping(time.Second))
		admin := newSpy(s.t, s.server).client(s.t)
		for range 6 {
			time.Sleep(time.Minute)
			s.mu.Lock()
			o := holdfast.BreakOptions{Token: s.last, Reason: "step down"}
			s.mu.Unlock()
			if err := admin.Break(ctx, "x", o); err != nil {
				s.bad("break: %v", err)
			}
		}
		time.Sleep(time.Minute)
		if terms := s.order(); len(terms) < 7 || terms[0] == terms[1] {
			s.bad("terms of %v", terms)
		}
	}},
}

func (s *story) count(kind holdfast.EventKind) (n int) {
	for _, e := range s.of(0) {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// play plays a scene and returns what went wrong.
func play(t *testing.T, run runs, scene func(context.Context, *stage)) (wrong []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &stage{t: t, server: memlock.NewServer(), run: run, tokens: map[uint64]bool{}}
		scene(ctx, s)
		cancel()
		s.running.Wait()
		time.Sleep(time.Hour) // what a wrong one left running ends too
		s.mu.Lock()
		defer s.mu.Unlock()
		wrong = s.wrong
	})
	return wrong
}

func TestRun(t *testing.T) {
	for _, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) {
			for _, wrong := range play(t, asItIs, scene.play) {
				t.Error(wrong)
			}
		})
	}
}

// wrongRuns are what a user may write instead of Run, and real programs have.
var wrongRuns = map[string]runs{
	// The next term may begin while the work of the one before goes on.
	"does not wait for the work": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
		for {
			term, err := e.Campaign(ctx, "")
			if err != nil {
				return err
			}
			done := make(chan error, 1)
			go func() { done <- fn(term.Context(), term) }()
			select {
			case err = <-done:
			case <-term.Context().Done():
				err = context.Cause(term.Context())
			case <-ctx.Done():
				err = ctx.Err()
			}
			_ = term.Resign(ctx)
			if err == nil || ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Second)
		}
	},
	// The work is called off when the term has ended, not before.
	"the lease's context": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
		for {
			term, err := e.Campaign(ctx, "")
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { _ = term.Resign(ctx) })
			err = fn(term.Context(), term)
			_ = term.Resign(ctx)
			if ctx.Err() != nil || err == nil && term.Context().Err() == nil {
				return errors.Join(ctx.Err(), err)
			}
			time.Sleep(time.Second)
		}
	},
	"no pause": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
		for {
			term, err := e.Campaign(ctx, "")
			if err != nil {
				return err
			}
			err = fn(term.Context(), term)
			_ = term.Resign(ctx)
			if err == nil {
				return nil
			}
		}
	},
	"one term for all": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
		term, err := e.Campaign(ctx, "")
		if err != nil {
			return err
		}
		defer func() { _ = term.Resign(ctx) }()
		for {
			if err = fn(term.Context(), term); err == nil {
				return nil
			}
			time.Sleep(time.Second)
		}
	},
	"nil goes on": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
		return e.Run(ctx, func(ctx context.Context, t *holdfast.Term) error {
			if err := fn(ctx, t); err != nil {
				return err
			}
			return errors.New("again")
		})
	},
	"keeps the term": func(ctx context.Context, e *holdfast.Election, fn func(context.Context, *holdfast.Term) error) error {
		term, err := e.Campaign(ctx, "")
		if err != nil {
			return err
		}
		return fn(term.Context(), term)
	},
}

// The scenes find who does it wrong.
func TestScenesFindWrongRuns(t *testing.T) {
	for _, scene := range scenes {
		for _, name := range scene.kills {
			t.Run(scene.name+"/"+name, func(t *testing.T) {
				if wrong := play(t, wrongRuns[name], scene.play); len(wrong) == 0 {
					t.Error("nothing was found")
				} else {
					t.Log(wrong)
				}
			})
		}
	}
}

// A panic of the work resigns and goes on.
func TestRunPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		func() {
			defer func() {
				if p := recover(); p != "oh" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = newSpy(t, server).client(t).Election("x").Run(t.Context(), func(context.Context, *holdfast.Term) error { panic("oh") })
		}()
		free(t, server)
	})
}

// What happens in a term is told: that the work ended and why, then that the term
// did.
func TestRunTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, tale, c := told(t, memlock.NewServer())
		times := 0
		err := c.Election("x").With(holdfast.ElectionOptions{Value: "me"}).Run(t.Context(), func(ctx context.Context, term *holdfast.Term) error {
			leader, err := c.Election("x").Leader(ctx)
			if err != nil || leader.Value != "me" || leader.Token != term.Token() {
				t.Errorf("%+v %v", leader, err)
			}
			time.Sleep(15 * time.Second)
			if times++; times == 1 {
				return errors.New("once more")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		events := tale.check(t, 0, "acquired renewed work_ended released acquired renewed work_ended released")
		if events[2].Err == nil || events[2].Took != 15*time.Second || events[6].Err != nil {
			t.Errorf("%+v", events)
		}
	})
}
