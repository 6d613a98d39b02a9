package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var electionCases = []Case{
	{
		ID: "V2.1", Rule: "Candidates lead one after the other, each term with a larger token, and the work of one has stopped before the next begins.",
		Quick: true, Func: leadersInTurn,
		Kills: []string{"missed wake-up", "token reset on delete", "token per process"},
	},
	{
		ID: "V2.2", Rule: "A leader that is called off takes its time to stop, and nobody leads meanwhile.",
		Func:  leaderStopsFirst,
		Kills: []string{"token reset on delete", "token per process"},
	},
	{
		ID: "V2.3", Rule: "A leader that is cut off from the store has stopped its work before another leads.",
		Needs: NeedLease, Func: cutOffLeaderStops,
		Kills: []string{"no moving on", "deadline from the reply", "token reset on delete", "token per process"},
	},
	{
		ID: "V2.4", Rule: "A term that is resigned with an ended context is over at once, and the next candidate leads.",
		Func: resignsAnyway, About: AboutClient,
	},
	{
		ID: "V2.5", Rule: "Campaigns that are called off leave no candidate behind.",
		Func:  campaignsCalledOff,
		Kills: []string{"silent hand-over", "missed wake-up", "abandoned grant stays"},
	},
	{
		ID: "V2.6", Rule: "A leader whose grant was ended in the store steps down, and leads again only by a new election.",
		Func:  deposedInStore,
		Kills: []string{"no owner compare", "token reset on delete", "token demanded"},
	},
	{
		ID: "V2.7", Rule: "A candidate whose place was ended in the store campaigns on with a new one.",
		Needs: NeedQueue, Func: placeOfCandidate,
		Kills: []string{"no moving on", "ghost waiter"},
	},
	{
		ID: "V2.8", Rule: "A leader steps down when a person breaks its term, and the next one leads.",
		Needs: NeedBreak, Func: brokenLeader,
		Kills: []string{"break untold", "token reset on delete", "token per process"},
	},
	{
		ID: "V2.9", Rule: "Elections whose names begin alike, or differ in case, are apart.",
		Func:  electionsApart,
		Kills: []string{"case folded"},
	},
	{
		ID: "V2.10", Rule: "Everybody can read who leads and what it says of itself; nobody, when it has resigned.",
		Needs: NeedValue, Func: leaderIsKnown,
		Kills: []string{"first value stays", "value unread"},
	},
	{
		ID: "V2.11", Rule: "Observers see each leader, each value, and when nobody leads; one that comes late sees the present leader at once.",
		Needs: NeedValue, Quick: true, Func: leadersAreSeen,
		Kills: []string{"first value stays", "value unread", "token reset on delete"},
	},
	{
		ID: "V2.12", Rule: "While leaders alternate, an observer's last word is right after each pause, and nothing older follows what it saw.",
		Needs: NeedValue | NeedFencing, Func: alternation,
		Kills: []string{"value unread", "token reset on delete"},
	},
	{
		ID: "V2.13", Rule: "A term lives by its own leader's TTL, whatever the others' is.",
		Needs: NeedLease, Func: termsOfTheirOwn,
		Kills: []string{"no moving on", "early end", "deadline from the reply"},
	},
}

// office is what the leaders of one election enter and leave.
type office struct {
	t    *T
	mu   sync.Mutex
	in   string
	last uint64
	held int
}

// enters notes that a leader works, until left is called.
func (o *office) enters(who string, term *holdfast.Term) (left func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.in != "" {
		o.t.Errorf("%s leads beside %s", who, o.in)
	}
	if term.Token() <= o.last && o.t.props.Fencing {
		o.t.Errorf("%s leads with token %d after %d", who, term.Token(), o.last)
	}
	if !term.Valid() {
		o.t.Errorf("%s leads in a term that is over", who)
	}
	o.in, o.last = who, term.Token()
	o.held++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.in = ""
	}
}

// leads campaigns for a term that must be had.
func (t *T) leads(e *holdfast.Election, value string) *holdfast.Term {
	ctx, cancel := context.WithTimeout(t.ctx, 3*liveness)
	defer cancel()
	term, err := e.Campaign(ctx, value)
	if err != nil {
		t.Fatalf("campaign: %v", err)
	}
	return term
}

func (t *T) resigns(term *holdfast.Term) {
	if err := term.Resign(t.ctx); err != nil {
		t.Errorf("resign: %v", err)
	}
}

// receive waits for something to come.
func receive[V any](t *T, from <-chan V, what string) V {
	var v V
	select {
	case v = <-from:
	case <-time.After(liveness):
		t.Fatalf("%s: nothing after %v", what, liveness)
	}
	return v
}

func leadersInTurn(t *T) {
	name, in := t.LockName(), &office{t: t}
	ctx, cancel := context.WithTimeout(t.ctx, 3*liveness)
	defer cancel()
	const each = 3
	t.crowd(5, t.clients(3), func(i int, c *holdfast.Client) {
		who := fmt.Sprint("candidate ", i)
		for range each {
			err := c.Election(name).Run(ctx, func(_ context.Context, term *holdfast.Term) error {
				defer in.enters(who, term)()
				t.pause(time.Millisecond)
				return nil
			})
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
		}
	})
	if in.held != 5*each {
		t.Errorf("%d terms, want %d", in.held, 5*each)
	}
}

func leaderStopsFirst(t *T) {
	a, b := t.Client(), t.Client()
	name, in := t.LockName(), &office{t: t}
	first, stop := context.WithCancel(t.ctx)
	begun := make(chan struct{})
	one := t.Go(func() {
		err := a.Election(name).Run(first, func(ctx context.Context, term *holdfast.Term) error {
			defer in.enters("the first", term)()
			close(begun)
			<-ctx.Done()
			t.pause(t.TTL()) // longer than a lease of the shortest TTL
			return nil
		})
		t.is(err, context.Canceled, "Run that was called off")
	})
	t.await(begun, "the first leader")
	two := t.Go(func() {
		err := b.Election(name).Run(t.ctx, func(_ context.Context, term *holdfast.Term) error {
			defer in.enters("the second", term)()
			return nil
		})
		if err != nil {
			t.Errorf("the second: %v", err)
		}
	})
	t.pause(t.TTL() / 10)
	stop()
	t.await(one, "the first leader's end")
	t.await(two, "the second leader")
}

// cutOffLeaderStops is B151.
func cutOffLeaderStops(t *T) {
	a, bad := t.linked()
	b := t.Client()
	name, in := t.LockName(), &office{t: t}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	begun := make(chan struct{}, 8)
	one := t.Go(func() {
		e := a.Election(name).With(holdfast.ElectionOptions{TTL: t.TTL()})
		_ = e.Run(ctx, func(ctx context.Context, term *holdfast.Term) error { // ends with ctx
			defer in.enters("the first", term)()
			begun <- struct{}{}
			<-ctx.Done()
			return nil
		})
	})
	receive(t, begun, "the first leader")
	bad.all(hangs)
	next := t.leads(b.Election(name), "")
	left := in.enters("the second", next)
	t.pause(t.TTL() / 4)
	left()
	bad.heal()
	t.resigns(next)
	receive(t, begun, "the first leader's next term") // it leads again by itself
	cancel()
	t.await(one, "the first leader's end")
}

// resignsAnyway is B145.
func resignsAnyway(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	term := t.leads(a.Election(name), "")
	w := t.waiting(t.ctx, b, name, nil)
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	err := term.Resign(ended)
	if term.Valid() || term.Context().Err() == nil {
		t.Errorf("leads after it has resigned")
	}
	if err != nil {
		t.Errorf("resign with an ended context: %v", err)
	}
	if err = term.Resign(t.ctx); err != nil {
		t.Errorf("resign again: %v", err)
	}
	t.frees(t.wins(w))
}

// campaignsCalledOff is B144.
func campaignsCalledOff(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	term := t.leads(a.Election(name), "")
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.ctx, time.Duration(i)*time.Millisecond)
		if lost, err := b.Election(name).Campaign(ctx, ""); err == nil {
			t.Errorf("elected beside the leader")
			t.resigns(lost)
		}
		cancel()
	}
	next := make(chan *holdfast.Term, 1)
	waits := t.Go(func() { next <- t.leads(c.Election(name), "") })
	begin := time.Now()
	t.resigns(term)
	t.await(waits, "the next leader")
	t.prompt(begin, "the next election")
	t.resigns(receive(t, next, "its term"))
}

// deposedInStore is B056.
func deposedInStore(t *T) {
	a, line := t.linked()
	b := t.Client()
	name := t.LockName()
	var mu sync.Mutex
	var seen driver.Name
	line.set(func(_ op, n driver.Name) fate {
		mu.Lock()
		defer mu.Unlock()
		seen = n
		return passes
	})
	terms := make(chan *holdfast.Term, 8)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	runs := t.Go(func() {
		e := a.Election(name).With(holdfast.ElectionOptions{TTL: t.Steady()})
		_ = e.Run(ctx, func(ctx context.Context, term *holdfast.Term) error { // ends with ctx
			terms <- term
			<-ctx.Done()
			return nil
		})
	})
	first := receive(t, terms, "the first leader")
	mu.Lock()
	n := seen
	mu.Unlock()
	line.heal()
	if ok, err := line.Store.Release(t.ctx, &driver.ReleaseRequest{
		Ref: driver.Ref{Name: n, Owner: t.ownerOf(first.Lease), Mode: driver.Exclusive},
	}); err != nil || !ok {
		t.Fatalf("release behind the client's back: %v, %v", ok, err)
	}
	next := t.leads(b.Election(name), "")
	if t.props.Bound != driver.ByLease { // no renewal tells it
		t.eventually("the leader learns of it", func() bool { return errors.Is(first.Check(t.ctx), holdfast.ErrLost) })
	}
	t.ends(first.Lease, holdfast.ErrLost)
	t.resigns(next)
	again := receive(t, terms, "its next term")
	if again.Owner() == first.Owner() || again.Token() <= next.Token() && t.props.Fencing {
		t.Errorf("leads again with owner %s and token %d", again.Owner(), again.Token())
	}
	cancel()
	t.await(runs, "the end of Run")
}

func placeOfCandidate(t *T) {
	a, p := t.Client(), t.peer()
	b, line := t.linked()
	name := t.LockName()
	term := t.leads(a.Election(name), "")
	places := make(chan *driver.AcquireRequest, 8)
	line.mu.Lock()
	line.tap = func(r *driver.AcquireRequest) {
		if kept := *r; r.Queue {
			places <- &kept
		}
	}
	line.mu.Unlock()
	next := make(chan *holdfast.Term, 1)
	waits := t.Go(func() { next <- t.leads(b.Election(name), "") })
	first := receive(t, places, "a place")
	t.eventually("the end of the place", func() bool { return p.abandoned(refTo(first)) })
	second := receive(t, places, "a new place")
	if second.Owner == first.Owner {
		t.Errorf("the new place has the old owner")
	}
	t.resigns(term)
	t.await(waits, "the candidate")
	t.resigns(receive(t, next, "its term"))
}

func brokenLeader(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name, in := t.LockName(), &office{t: t}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	first := make(chan *holdfast.Term, 8)
	one := t.Go(func() {
		_ = a.Election(name).Run(ctx, func(ctx context.Context, term *holdfast.Term) error { // ends with ctx
			defer in.enters("the first", term)()
			first <- term
			<-ctx.Done()
			return nil
		})
	})
	term := receive(t, first, "the first leader")
	o := holdfast.BreakOptions{Owner: term.Owner(), Reason: "your turn is over"}
	if err := c.Break(t.ctx, name, o); err != nil {
		t.Fatalf("break: %v", err)
	}
	if !t.comes(func() bool { return !term.Valid() || term.Check(t.ctx) != nil }) {
		t.Errorf("leads although its term was broken")
	}
	next := t.leads(b.Election(name), "")
	left := in.enters("the second", next)
	t.is(context.Cause(term.Context()), holdfast.ErrBroken, "why the term ended")
	left()
	cancel()
	t.resigns(next)
	t.await(one, "the first leader's end")
}

// electionsApart is B074.
func electionsApart(t *T) {
	a, b := t.Client(), t.Client()
	base := t.LockName() + "/xy"
	names := []string{base, base + "z", base + "/1", base + "/", strings.TrimSuffix(base, "y"), strings.ToUpper(base)}
	var terms []*holdfast.Term
	for i, name := range names {
		terms = append(terms, t.leads([]*holdfast.Client{a, b}[i%2].Election(name), ""))
	}
	for _, term := range terms {
		if !term.Valid() {
			t.Errorf("%q is not led any more", term.Name())
		}
		t.resigns(term)
	}
}

func leaderIsKnown(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	asks := func(want string, term *holdfast.Term) {
		for _, c := range []*holdfast.Client{a, b} {
			l, err := c.Election(name).Leader(t.ctx)
			switch {
			case err != nil:
				t.Errorf("leader: %v", err)
			case term == nil && !l.None():
				t.Errorf("%q leads, and should not", l.Value)
			case term != nil && (l.Value != want || l.Token != term.Token() || l.Owner != term.Owner()):
				t.Errorf("leader %+v, want %q with token %d", l, want, term.Token())
			}
		}
	}
	asks("", nil)
	for _, value := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		term := t.leads(a.Election(name), value)
		asks(value, term)
		if err := term.Proclaim(t.ctx, "draining"); err != nil {
			t.Errorf("proclaim: %v", err)
		}
		asks("draining", term)
		t.resigns(term)
		t.is(term.Proclaim(t.ctx, "back"), holdfast.ErrReleased, "proclaim after the term")
		asks("", nil)
		a, b = b, a
	}
}

// observes reads an election in the background.
func (t *T) observes(e *holdfast.Election) <-chan holdfast.Leader {
	ctx, cancel := context.WithCancel(t.ctx)
	seen := make(chan holdfast.Leader, 256)
	done := t.Go(func() {
		for l, err := range e.Observe(ctx) {
			if err != nil {
				t.Errorf("observe: %v", err)
			}
			seen <- l
		}
	})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return seen
}

// sees waits until an observer has seen a value, or nobody for "".
func (t *T) sees(seen <-chan holdfast.Leader, value string) holdfast.Leader {
	for limit := time.After(liveness); ; {
		select {
		case l := <-seen:
			if l.Value == value && l.None() == (value == "") {
				return l
			}
		case <-limit:
			t.Fatalf("the observer has not seen %q", value)
		}
	}
}

// leadersAreSeen is B152.
func leadersAreSeen(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	seen := t.observes(b.Election(name))
	t.sees(seen, "")
	for _, who := range []string{"a", "b"} {
		term := t.leads(a.Election(name), who)
		if l := t.sees(seen, who); l.Token != term.Token() || l.Owner != term.Owner() {
			t.Errorf("seen %+v, want token %d", l, term.Token())
		}
		if err := term.Proclaim(t.ctx, who+", still"); err != nil {
			t.Errorf("proclaim: %v", err)
		}
		t.sees(seen, who+", still")
		t.sees(t.observes(a.Election(name)), who+", still") // comes late
		t.resigns(term)
		t.sees(seen, "")
	}
}

func alternation(t *T) {
	a, b, c := t.Client(), t.Client(), t.Client()
	name := t.LockName()
	seen := t.observes(c.Election(name))
	var newest uint64
	for i := range 12 {
		who := fmt.Sprint("leader ", i)
		term := t.leads([]*holdfast.Client{a, b}[i%2].Election(name), who)
		if i%4 == 3 {
			l := t.sees(seen, who)
			if l.Token <= newest {
				t.Errorf("token %d after %d", l.Token, newest)
			}
			newest = l.Token
		}
		t.resigns(term)
	}
	t.sees(seen, "")
}

// termsOfTheirOwn is B147.
func termsOfTheirOwn(t *T) {
	for _, pair := range [][2]time.Duration{{3 * t.TTL(), t.TTL()}, {t.TTL(), 3 * t.TTL()}} {
		a, bad := t.linked()
		b := t.Client()
		name := t.LockName()
		term := t.leads(a.Election(name).With(holdfast.ElectionOptions{TTL: pair[0]}), "")
		bad.all(hangs)
		begin := time.Now()
		next := t.leads(b.Election(name).With(holdfast.ElectionOptions{TTL: pair[1]}), "")
		if term.Valid() {
			t.Errorf("two leaders")
		}
		if took := time.Since(begin); took < pair[0]/2 {
			t.Errorf("a term of %v was over after %v", pair[0], took)
		}
		bad.heal()
		t.resigns(next)
	}
}
