package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// never is the end of what nobody saw end.
const never = int64(math.MaxInt64)

// id names an acquire in all processes.
type id struct {
	proc string
	op   uint64
}

// Grant is an acquire that returned a lease, with what became of it.
type Grant struct {
	Proc   string
	Client int
	Op     uint64
	Name   string
	Mode   string
	N      int
	Limit  int
	Token  uint64

	Called   int64 // the acquire
	Returned int64
	Ended    int64 // until when its holder might act: see [History.Beliefs]
	Why      string
	// From Freed on the store may have freed it, and surely has by Gone.
	Freed, Gone int64

	root     id // itself, unless it shares another's hold
	deadline int64
	// doubtful: a break by force came first, which takes the promise back.
	doubtful bool
}

func (g *Grant) id() id { return id{g.Proc, g.Op} }

func (g *Grant) String() string {
	s := fmt.Sprintf("%s/%d op %d: %s %q token %d(%d+%d)", g.Proc, g.Client, g.Op, g.Mode, g.Name, g.Token, g.Token>>8, g.Token&255)
	if g.Mode == Permits {
		s += fmt.Sprintf(" %d of %d", g.N, g.Limit)
	}
	if g.root != g.id() {
		s += fmt.Sprintf(" shares op %d", g.root.op)
	}
	return s + fmt.Sprintf(", called %d, believed %d to %s (%s)", g.Called, g.Returned, moment(g.Ended), g.Why)
}

func moment(at int64) string {
	if at == never {
		return "the end"
	}
	return strconv.FormatInt(at, 10)
}

// History is what the events of all processes amount to.
type History struct {
	Events []Event  // in order of time
	Grants []*Grant // in order of return
	// Refused and Unknown count acquires that returned no lease. Open counts
	// those that never returned, as their process was killed.
	Refused, Unknown, Open int

	byID map[id]*Grant
}

// New makes a history of the events of all logs, in any order.
func New(events []Event) (*History, error) {
	h := &History{Events: slices.Clone(events), byID: map[id]*Grant{}}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	calls := map[id]Event{}
	var errs []error
	for i := range h.Events {
		errs = append(errs, h.take(&h.Events[i], calls))
	}
	h.Open = len(calls)
	for i := range h.Events {
		h.end(&h.Events[i])
	}
	for _, g := range h.Grants {
		errs = append(errs, h.settle(g))
	}
	return h, errors.Join(errs...)
}

// take notes calls and what they returned.
func (h *History) take(e *Event, calls map[id]Event) error {
	key := id{e.Proc, e.Op}
	switch e.Kind {
	case Acquire:
		calls[key] = *e
		return nil
	case Granted, Refused, Unknown:
	default:
		return nil
	}
	call, ok := calls[key]
	if !ok {
		return fmt.Errorf("%s of %s op %d without a call", e.Kind, e.Proc, e.Op)
	}
	delete(calls, key)
	switch e.Kind { //nolint:exhaustive // see above
	case Refused:
		h.Refused++
	case Unknown:
		h.Unknown++
	case Granted:
		g := &Grant{
			Proc: e.Proc, Client: e.Client, Op: e.Op, Name: call.Name, Mode: call.Mode, N: call.N, Limit: call.Limit,
			Token: e.Token, Called: call.At, Returned: e.At, deadline: e.Deadline,
			Ended: never, Freed: never, Gone: never, root: key, Why: "never released",
		}
		if e.Root != 0 {
			g.root = id{cmp.Or(e.RootProc, e.Proc), e.Root}
		}
		h.Grants = append(h.Grants, g)
		h.byID[key] = g
	}
	return nil
}

// end notes what ends grants.
func (h *History) end(e *Event) {
	if g := h.byID[id{e.Proc, e.Op}]; g != nil {
		g.note(e)
		return
	}
	switch e.Kind { //nolint:exhaustive // the others end nothing
	case Closing, Killed:
		for _, g := range h.Grants {
			if g.Proc == e.Proc && g.Returned < e.At && (e.Kind == Killed || g.Client == e.Client) {
				g.ends(e.At, string(e.Kind))
			}
		}
	case Break:
		for _, g := range h.Grants {
			if g.Name == e.Name && g.Token>>8 == e.Token>>8 {
				g.breaks(e.At)
			}
		}
	}
}

// note takes an event of the grant itself.
func (g *Grant) note(e *Event) {
	switch e.Kind { //nolint:exhaustive // the others change nothing
	case Held:
		g.deadline = e.Deadline
	case Release:
		if e.Deadline != 0 {
			g.deadline = e.Deadline
		}
		g.ends(e.At, "release")
	case Lost:
		if e.Deadline != 0 {
			g.ends(e.Deadline, "lost: "+e.Err)
		}
		g.ends(e.At, "lost: "+e.Err)
	case Released:
		if e.OK {
			g.Gone = min(g.Gone, e.At)
		}
	}
}

func (g *Grant) ends(at int64, why string) {
	if at < g.Ended {
		g.Ended, g.Why = at, why
	}
}

// breaks takes a break by force of the grant in the store, which hand-overs
// within the process may have passed on: those of them that returned later are
// in doubt from the start.
func (g *Grant) breaks(at int64) {
	if g.Returned > at {
		g.doubtful = true
		return
	}
	g.ends(at, "break")
}

// settle works out the rest once all is noted.
func (h *History) settle(g *Grant) error {
	if g.deadline != 0 {
		g.ends(g.deadline, "deadline")
	}
	// A store that keeps its promise frees nothing that somebody believes in. Whose
	// process was stopped before it could say that it has the lease believed in nothing.
	g.Freed = max(g.Ended, g.Called)
	if g.Gone < g.Freed {
		g.Gone = never
	}
	for hops := 0; g.root != g.id(); hops++ {
		outer := h.byID[g.root]
		if outer == nil || hops > len(h.Grants) {
			return fmt.Errorf("%s: no such hold to share", g)
		}
		if outer.root == g.root {
			break
		}
		g.root = outer.root
	}
	return nil
}
