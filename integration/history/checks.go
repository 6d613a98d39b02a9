package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check runs all three checks, the last for at most so long a name. The error
// names every violation and where the rest of the evidence is.
func (h *History) Check(limit time.Duration) error {
	return errors.Join(h.Beliefs(), h.Tokens(), h.Model(limit))
}

// byName parts the grants, in the order of their return; doubtful ones are left
// out.
func (h *History) byName() map[string][]*Grant {
	names := map[string][]*Grant{}
	for _, g := range h.Grants {
		if !g.doubtful {
			names[g.Name] = append(names[g.Name], g)
		}
	}
	return names
}

// Beliefs finds grants that conflict. A grant is believed in from the moment
// when its acquire returned to the first of: its release is called, its holder
// was told of a loss, its deadline passed, its client was closed or its process
// killed, somebody broke it by force. Shares of one hold never conflict.
func (h *History) Beliefs() error {
	var errs []error
	for _, grants := range h.byName() {
		var live []*Grant
		for _, g := range grants {
			live = slices.DeleteFunc(live, func(o *Grant) bool { return o.Ended <= g.Returned })
			if g.Ended <= g.Returned {
				continue // over before anybody could act on it
			}
			errs = append(errs, conflicts(g, live)...)
			live = append(live, g)
		}
	}
	return few(errs)
}

// conflicts tells which live grants g may not meet.
func conflicts(g *Grant, live []*Grant) (errs []error) {
	used := g.N
	for _, o := range live {
		if o.root == g.root {
			continue
		}
		used += o.N
		if g.Mode == Exclusive || o.Mode == Exclusive {
			errs = append(errs, fmt.Errorf("belief: two at once:\n  %s\n  %s", o, g))
		}
	}
	if g.Mode == Permits && used > g.Limit {
		errs = append(errs, fmt.Errorf("belief: %d permits of %d in use, with the last of these:\n  %v", used, g.Limit, append(live, g)))
	}
	return errs
}

// Tokens finds tokens that do not grow: one that is not above those of all
// grants of its name that had returned before it was called, one that is given
// twice, and a share of a hold with another token than the hold's own.
func (h *History) Tokens() error {
	var errs []error
	for _, grants := range h.byName() {
		errs = append(errs, order(grants)...)
		owners := map[uint64]*Grant{}
		for _, g := range grants {
			if g.Token == 0 {
				continue // the store cannot give one
			}
			if root := h.byID[g.root]; root != g {
				if root.Token != g.Token {
					errs = append(errs, fmt.Errorf("token: a share of a hold has another token:\n  %s\n  %s", root, g))
				}
				continue
			}
			if o := owners[g.Token]; o != nil {
				errs = append(errs, fmt.Errorf("token: given twice:\n  %s\n  %s", o, g))
			}
			owners[g.Token] = g
		}
	}
	return few(errs)
}

// order walks the calls in time, with the largest token that had returned by
// then. grants are in the order of their return.
func order(grants []*Grant) (errs []error) {
	calls := slices.Clone(grants)
	slices.SortFunc(calls, func(a, b *Grant) int { return cmp.Compare(a.Called, b.Called) })
	var largest *Grant
	next := 0
	for _, g := range calls {
		for ; next < len(grants) && grants[next].Returned < g.Called; next++ {
			if largest == nil || grants[next].Token > largest.Token {
				largest = grants[next]
			}
		}
		shares := g.root != g.id()
		if largest != nil && g.Token <= largest.Token && g.Token != 0 && !shares {
			errs = append(errs, fmt.Errorf("token: does not grow:\n  %s\n  %s", largest, g))
		}
	}
	return errs
}

// Effects finds lost updates of a resource that is a counter, read, raised by
// one and written in the exclusive sections of one name: two that led to the
// same value. count is how many there were.
func (h *History) Effects() (count int, err error) {
	var errs []error
	type value struct {
		name string
		now  uint64
	}
	seen := map[value]*Grant{}
	for i := range h.Events {
		e := &h.Events[i]
		if e.Kind != Effect {
			continue
		}
		count++
		g := h.byID[id{e.Proc, e.Op}]
		if g == nil || e.Now != e.Was+1 {
			errs = append(errs, fmt.Errorf("effect: not under a grant, or not by one: %+v", *e))
			continue
		}
		key := value{g.Name, e.Now}
		if o := seen[key]; o != nil {
			errs = append(errs, fmt.Errorf("effect: an update was lost, both made %d:\n  %s\n  %s", e.Now, o, g))
		}
		seen[key] = g
	}
	return count, few(errs)
}

// few joins the first of many errors: what went wrong once often does so again
// and again, and the first is the one to read.
func few(errs []error) error {
	const most = 5
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}
