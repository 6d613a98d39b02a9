package drivertest

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

var inputCases = []Case{
	{
		ID: "E3.1", Rule: "Options that can never work are ErrInvalid before the store is asked.",
		Quick: true, Func: invalidOptions, About: AboutInput,
	},
	{
		ID: "E3.2", Rule: "Every problem is reported at once.",
		Func: everyProblem, About: AboutInput,
	},
	{
		ID: "E3.3", Rule: "Names that are empty, too long, no UTF-8 or hold a NUL byte are ErrInvalid on every store.",
		Quick: true, Func: invalidNames, About: AboutInput,
	},
	{
		ID: "E3.4", Rule: "A renewal for no time, less than none or for ever is ErrInvalid, and the lease stays as it is.",
		Func:  invalidRenewals,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "E3.5", Rule: "The longest and the shortest TTL and the highest limit work.",
		Func:  extremes,
		Kills: []string{"one permit too many", "deadline from the reply", "try takes a place"},
	},
}

func invalidOptions(t *T) {
	a, line := t.linked()
	b := t.Client()
	name := t.LockName()
	for what, o := range map[string]holdfast.AcquireOptions{
		"a TTL of 1 ns":        {TTL: 1},
		"a negative TTL":       {TTL: -time.Second},
		"a TTL of 199 ms":      {TTL: 199 * time.Millisecond},
		"a TTL over a day":     {TTL: 24*time.Hour + 1},
		"no permit of a limit": {Limit: 3},
		"permits of no limit":  {Permits: 1},
		"negative permits":     {Permits: -1, Limit: 3},
		"permits over limit":   {Permits: 4, Limit: 3},
		"a huge limit":         {Permits: 1, Limit: 1<<20 + 1},
		"permits and a mode":   {Permits: 1, Limit: 3, Mode: holdfast.Shared},
		"permits as a mode":    {Mode: holdfast.Permits},
		"no such mode":         {Mode: 17},
		"a negative wait":      {Wait: -1},
		"negative tries":       {Tries: -1},
		"a negative MinHold":   {MinHold: -1},
		"MaxHold below TTL":    {MaxHold: time.Millisecond},
		"MinHold over MaxHold": {MinHold: 2 * time.Second, MaxHold: time.Second},
		"reentrant permits":    {Permits: 1, Limit: 3, Reentrant: true},
		"a label too long":     {Label: strings.Repeat("l", 257)},
		"a label not UTF-8":    {Label: "\xff"},
	} {
		_, err := a.Acquire(t.ctx, name, &o)
		t.is(err, holdfast.ErrInvalid, "Acquire with "+what)
		_, err = a.TryAcquire(t.ctx, name, &o)
		t.is(err, holdfast.ErrInvalid, "TryAcquire with "+what)
	}
	if n := line.count(opAcquire, opBlock); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	t.frees(t.gets(b, name, nil))
}

func everyProblem(t *T) {
	a, b := t.Client(), t.Client()
	name := strings.Repeat("n", 513)
	for _, c := range []*holdfast.Client{a, b} {
		_, err := c.Acquire(t.ctx, name, &holdfast.AcquireOptions{TTL: 1, Permits: 2, Limit: 1, Wait: -1})
		t.is(err, holdfast.ErrInvalid, "four problems")
		for _, word := range []string{"name", "ttl", "permits", "wait"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not in: %v", word, err)
			}
		}
	}
}

func invalidNames(t *T) {
	for _, c := range t.clients(2) {
		for _, name := range []string{"", strings.Repeat("n", 513), strings.Repeat("n", 4096), "\xff", "a\xc3", "nul\x00", strings.Repeat("ä", 257)} {
			_, err := c.TryAcquire(t.ctx, name, nil)
			t.is(err, holdfast.ErrInvalid, "a bad name")
			_, err = c.Acquire(t.ctx, name, nil)
			t.is(err, holdfast.ErrInvalid, "a bad name")
		}
	}
}

func invalidRenewals(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l := t.locks(a, name, nil)
	before := deadlineOf(l)
	for _, ttl := range []time.Duration{0, -time.Second, 1, 100 * time.Millisecond, 25 * time.Hour} {
		t.is(l.Renew(t.ctx, ttl), holdfast.ErrInvalid, "renewal for "+ttl.String())
		t.busy(b, name, nil, "after a renewal for "+ttl.String())
	}
	if _, ok := l.Deadline(); ok && before.Sub(deadlineOf(l)) > clockNoise {
		t.Errorf("a refused renewal took from the deadline")
	}
	if !l.Valid() {
		t.Errorf("not valid after refused renewals")
	}
	t.frees(l)
	t.frees(t.gets(b, name, nil))
}

func extremes(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	ttls := []time.Duration{max(holdfast.MinTTL, t.props.MinTTL)}
	if t.props.MaxTTL == 0 || t.props.MaxTTL >= holdfast.MaxTTL {
		ttls = append(ttls, holdfast.MaxTTL)
	}
	for _, ttl := range ttls {
		l := t.opens(a, name, &holdfast.AcquireOptions{TTL: ttl})
		if !l.Valid() {
			t.Errorf("a lease of %v is not valid", ttl)
		}
		t.busy(b, name, nil, "beside a lease of "+ttl.String())
		_ = l.Release(t.ctx) // the shortest may be lost on a busy machine
		t.frees(t.opens(b, name, nil))
	}
	if t.props.Permits {
		o := &holdfast.AcquireOptions{Permits: holdfast.MaxPermits, Limit: holdfast.MaxPermits}
		s := t.LockName()
		l := t.gets(a, s, o)
		t.busy(b, s, &holdfast.AcquireOptions{Permits: 1, Limit: holdfast.MaxPermits}, "beside all permits")
		t.frees(l)
	}
}
