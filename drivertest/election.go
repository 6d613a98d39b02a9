package drivertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
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
		Kills: []string{"first value stays", "value unread"},
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
		end := deadlineOf(term.Lease)
		next := t.leads(b.Election(name).With(holdfast.ElectionOptions{TTL: pair[1]}), "")
		if term.Valid() {
			t.Errorf("two leaders")
		}
		if early := time.Until(end); early > 0 {
			t.Errorf("a term of %v was over %v too early", pair[0], early)
		}
		bad.heal()
		t.resigns(next)
	}
}
