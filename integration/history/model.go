package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Model asks porcupine whether one lock, doing one thing at a time, could have
// given what was seen: each grant at some moment between its call and its
// return, each end of one at some moment between the first at which the store
// might free it and the one at which it surely had. It takes at most so long a
// name; a search that does not end in time has shown nothing, and fails. On a
// failure the error names an HTML page that shows the history.
func (h *History) Model(limit time.Duration) error {
	var errs []error
	for name, grants := range h.byName() {
		ops := h.operations(grants)
		result, info := porcupine.CheckOperationsVerbose(model, ops, limit)
		if result == porcupine.Ok {
			continue
		}
		why := "no single lock could have done this"
		if result == porcupine.Unknown {
			why = fmt.Sprintf("undecided after %v", limit)
		}
		errs = append(errs, fmt.Errorf("model: %q, %d operations: %s: %s", name, len(ops), why, picture(info)))
	}
	return errors.Join(errs...)
}

// operations are what the model judges. Acquires that returned no lease are not
// among them: to all that it looks at, one of unknown outcome that was done and
// undone is the same as one that was not done.
func (h *History) operations(grants []*Grant) []porcupine.Operation {
	// The end of time for those that may never be done.
	last := h.Events[len(h.Events)-1].At
	for _, g := range grants {
		if g.Freed != never {
			last = max(last, g.Freed)
		}
	}
	rows := map[string]int{}
	row := func(who string) int {
		if _, ok := rows[who]; !ok {
			rows[who] = len(rows)
		}
		return rows[who]
	}
	keys := map[id]int{}
	ops := make([]porcupine.Operation, 0, 2*len(grants))
	for _, g := range grants {
		if _, ok := keys[g.root]; !ok {
			keys[g.root] = len(keys)
		}
		s := step{key: keys[g.root], mode: g.Mode, n: g.N, limit: g.Limit, token: g.Token, share: g.root != g.id()}
		who := row(fmt.Sprintf("%s/%d", g.Proc, g.Client))
		ops = append(ops, porcupine.Operation{ClientId: who, Input: s, Call: g.Called, Return: g.Returned, Metadata: g.String()})
		if g.Freed == never {
			continue
		}
		s.end = true
		gone := g.Gone
		if gone == never {
			gone = last + 1
			who = row(fmt.Sprintf("%s/%d, may end", g.Proc, g.Client))
		}
		ops = append(ops, porcupine.Operation{ClientId: who, Input: s, Call: g.Freed, Return: gone, Metadata: g.Why})
	}
	return ops
}

// step is one operation: a grant or, with end, the end of one.
type step struct {
	end   bool
	key   int // of the hold
	mode  string
	n     int
	limit int
	token uint64
	share bool // of a hold that is there already
}

// lock is the model's state.
type lock struct {
	holds []held // by key
	// The largest token of all, and of those given to writers.
	last, writer uint64
}

type held struct {
	key    int
	mode   string
	n      int
	shares int
}

// model is mutex, read-write lock and semaphore in one: [lock.admits] tells them
// apart, by the modes that are asked for. Tokens of writers grow from step to
// step. Readers' may be out of order among themselves, never against a
// writer's. Those of a semaphore need not grow in this order (only as
// [History.Tokens] says): when a process hands permits on among its own, the
// heir's token is below one that another process got meanwhile.
var model = porcupine.Model{
	Init:                      func() any { return lock{} },
	Step:                      func(state, input, _ any) (bool, any) { return as[lock](state).step(as[step](input)) },
	Equal:                     func(a, b any) bool { return as[lock](a).equal(as[lock](b)) },
	DescribeOperation:         func(input, _ any) string { return as[step](input).String() },
	DescribeState:             func(state any) string { return as[lock](state).String() },
	DescribeOperationMetadata: func(info any) string { return fmt.Sprint(info) },
}

// as undoes what porcupine's interface hides.
func as[T any](v any) T { return v.(T) } //nolint:errcheck,forcetypeassert // nothing else is ever put in

func (l lock) step(s step) (bool, any) {
	i, found := slices.BinarySearchFunc(l.holds, s.key, func(h held, key int) int { return cmp.Compare(h.key, key) })
	switch {
	case s.end && !found:
		return true, l
	case s.end && l.holds[i].shares > 1:
		l.holds = slices.Clone(l.holds)
		l.holds[i].shares--
		return true, l
	case s.end:
		l.holds = slices.Concat(l.holds[:i], l.holds[i+1:])
		return true, l
	case s.share && found:
		l.holds = slices.Clone(l.holds)
		l.holds[i].shares++
		return true, l
	case s.share, found, !l.admits(s):
		return false, l
	}
	l.holds = slices.Insert(slices.Clone(l.holds), i, held{s.key, s.mode, s.n, 1})
	return l.mint(s)
}

// admits tells whether one more hold conflicts with none there is.
func (l lock) admits(s step) bool {
	used := s.n
	for _, h := range l.holds {
		if s.mode == Exclusive || h.mode != s.mode {
			return false
		}
		used += h.n
	}
	return s.mode != Permits || used <= s.limit
}

// mint checks the token of a fresh grant.
func (l lock) mint(s step) (bool, any) {
	switch {
	case s.token == 0 || s.mode == Permits:
	case s.mode == Exclusive:
		if s.token <= l.last {
			return false, l
		}
		l.last, l.writer = s.token, s.token
	default:
		if s.token <= l.writer {
			return false, l
		}
		l.last = max(l.last, s.token)
	}
	return true, l
}

func (l lock) equal(o lock) bool {
	return l.last == o.last && l.writer == o.writer && slices.Equal(l.holds, o.holds)
}

func (s step) String() string {
	if s.end {
		return fmt.Sprintf("end of hold %d", s.key)
	}
	text := fmt.Sprintf("grant of %s, hold %d, token %d", s.mode, s.key, s.token)
	if s.mode == Permits {
		text += fmt.Sprintf(", %d of %d", s.n, s.limit)
	}
	return text
}

func (l lock) String() string {
	var b strings.Builder
	for _, h := range l.holds {
		fmt.Fprintf(&b, "%s %d×%d; ", h.mode, h.key, max(h.n, h.shares))
	}
	fmt.Fprintf(&b, "last token %d", l.last)
	return b.String()
}

// picture writes the page and says where.
func picture(info porcupine.LinearizationInfo) string {
	file, err := os.CreateTemp("", "holdfast-history-*.html")
	if err != nil {
		return "no picture: " + err.Error()
	}
	if err := errors.Join(porcupine.Visualize(model, info, file), file.Close()); err != nil {
		return "no picture: " + err.Error()
	}
	return "see " + file.Name()
}
