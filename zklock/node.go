package zklock

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// A hold or place is an ephemeral sequential child of the name's node. All that
// decides who holds is in the children's names, so one list of them tells it:
//
//	hf1-x-OWNER-SEQ     exclusive
//	hf1-s-OWNER-SEQ     shared
//	hf1-p3.10-OWNER-SEQ 3 permits of 10
const (
	version    = "hf1"
	ownerChars = 2 * len(driver.Owner{})
)

// child is one of the name's children that is ours, or another client's.
type child struct {
	name     string
	owner    driver.Owner
	mode     driver.Mode
	n, limit int
	seq      int32
}

// childPrefix is the name of a child without the number that the server adds.
func childPrefix(req *driver.AcquireRequest) string {
	kind := "x"
	switch req.Mode {
	case driver.Shared:
		kind = "s"
	case driver.Permits:
		kind = "p" + strconv.Itoa(req.N) + "." + strconv.Itoa(req.Limit)
	case driver.Exclusive:
	}
	return version + "-" + kind + "-" + hex.EncodeToString(req.Owner[:]) + "-"
}

// parseChild is false for what no lock of this version made.
func parseChild(name string) (c child, ok bool) {
	rest, ok := strings.CutPrefix(name, version+"-")
	kind, rest, ok2 := strings.Cut(rest, "-")
	if !ok || !ok2 || len(rest) <= ownerChars || rest[ownerChars] != '-' {
		return c, false
	}
	if _, err := hex.Decode(c.owner[:], []byte(rest[:ownerChars])); err != nil {
		return c, false
	}
	// After 2^31 children of one name the server's number turns negative.
	seq, err := strconv.ParseInt(rest[ownerChars+1:], 10, 32)
	if err != nil {
		return c, false
	}
	c.name, c.seq = name, int32(seq)
	ok = c.parseKind(kind)
	return c, ok
}

func (c *child) parseKind(kind string) bool {
	switch kind {
	case "x":
		c.mode = driver.Exclusive
		return true
	case "s":
		c.mode = driver.Shared
		return true
	}
	n, limit, ok := strings.Cut(strings.TrimPrefix(kind, "p"), ".")
	var err1, err2 error
	c.n, err1 = strconv.Atoi(n)
	c.limit, err2 = strconv.Atoi(limit)
	c.mode = driver.Permits
	return ok && kind[:1] == "p" && err1 == nil && err2 == nil && 1 <= c.n && c.n <= c.limit
}

// before is the order of arrival. The numbers turn over, so their difference
// counts.
func (c *child) before(d *child) int { return cmp.Compare(c.seq-d.seq, 0) }

// view is the children of a name at one moment, in order of arrival.
type view struct {
	children []child
	// later: one was made by a version of which we know nothing.
	later bool
}

// newView sorts a list of children. Those that are no lock's do not count.
func newView(names []string) view {
	var v view
	v.children = make([]child, 0, len(names))
	for _, name := range names {
		if c, ok := parseChild(name); ok {
			v.children = append(v.children, c)
		}
		v.later = v.later || ofLaterVersion(name)
	}
	slices.SortFunc(v.children, func(a, b child) int { return a.before(&b) })
	return v
}

// ofLaterVersion is true for hf2-… and so on.
func ofLaterVersion(name string) bool {
	digits, _, ok := strings.Cut(strings.TrimPrefix(name, "hf"), "-")
	n, err := strconv.Atoi(digits)
	return ok && strings.HasPrefix(name, "hf") && err == nil && n > 1
}

func (v *view) find(name string) int {
	return slices.IndexFunc(v.children, func(c child) bool { return c.name == name })
}

// conflict tells whether the name is another kind of thing than child i: what
// its oldest child says. The younger of two kinds that came at once withdraws.
func (v *view) conflict(i int) error {
	first := &v.children[0]
	if v.later {
		return errOtherVersion
	}
	if first.limit == v.children[i].limit {
		return nil
	}
	return otherKind(first.limit, v.children[i].limit)
}

// queue is what a child waits for: how many of those before it, and the last of
// them.
type queue struct {
	ahead int
	last  *child
}

func (v *view) queue(i int) (q queue) {
	c := &v.children[i]
	used, all := c.n, queue{ahead: i}
	for j := range v.children[:i] {
		b := &v.children[j]
		used += b.n
		all.last = b
		if c.mode == driver.Exclusive || b.mode == driver.Exclusive || b.limit != c.limit {
			q.ahead++
			q.last = b
		}
	}
	if q.ahead == 0 && used > c.limit && c.mode == driver.Permits {
		return all // strictly in order: whoever came before goes first
	}
	return q
}

// holds tells whether child i is a holder. It never ceases to be one while it is
// there: those before it only get fewer.
func (v *view) holds(i int) bool { return v.queue(i).ahead == 0 }

// holders is how many of the first children hold the name.
func (v *view) holders() int {
	n := 0
	for n < len(v.children) && v.holds(n) {
		n++
	}
	return n
}
