package zklock

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

const owner = "000102030405060708090a0b0c0d0e0f"

// docs/wire.md has these.
func TestChildren(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]child{
		"hf1-x-" + owner + "-0000000042":              {mode: driver.Exclusive, seq: 42},
		"hf1-s-" + owner + "-0000000043":              {mode: driver.Shared, seq: 43},
		"hf1-p3.10-" + owner + "-0000000044":          {mode: driver.Permits, n: 3, limit: 10, seq: 44},
		"hf1-p1048576.1048576-" + owner + "--0000001": {mode: driver.Permits, n: 1 << 20, limit: 1 << 20, seq: -1},
	} {
		got, ok := parseChild(name)
		for i := range want.owner {
			want.owner[i] = byte(i)
		}
		want.name = name
		if !ok || got != want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
		req := &driver.AcquireRequest{Owner: got.owner, Mode: got.mode, N: got.n, Limit: got.limit}
		if prefix := childPrefix(req); !strings.HasPrefix(name, prefix) {
			t.Errorf("%s is made as %s", name, prefix)
		}
	}
}

func TestForeignChildren(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "lock-0000000001", "_c_1234-lock-0000000001", "hf1", "hf1-", "hf1-x-", "hf1-x-" + owner, "hf1-x-" + owner + "-", "hf1-x-" + owner + "-a",
		"hf1-y-" + owner + "-0000000001", "hf1-p-" + owner + "-0000000001", "hf1-p0.3-" + owner + "-0000000001", "hf1-p4.3-" + owner + "-0000000001",
		"hf1-p3-" + owner + "-0000000001", "hf1-x-" + owner[1:] + "-0000000001", "hf1--" + owner + "-0000000001", "hf1-x-" + owner + "-99999999999", "hello-1",
	} {
		if c, ok := parseChild(name); ok {
			t.Errorf("%s: %+v", name, c)
		}
		if v := newView([]string{name}); len(v.children) > 0 || v.later {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v := newView([]string{"hf2-x-whatever-0000000001"}); !v.later {
		t.Error("a later version is overlooked")
	}
}

// childrenOf makes children of some kinds, oldest first.
func childrenOf(seq int32, kinds string) (names []string) {
	for i, kind := range strings.Fields(kinds) {
		o := driver.Owner{byte(i)}
		req := &driver.AcquireRequest{Owner: o}
		switch kind[0] {
		case 'x':
			req.Mode = driver.Exclusive
		case 's':
			req.Mode = driver.Shared
		default:
			req.Mode, req.N, req.Limit = driver.Permits, int(kind[0]-'0'), 5
		}
		names = append(names, childPrefix(req)+pad(seq+int32(i)))
	}
	return names
}

// pad is how the server writes a number.
func pad(n int32) string {
	text := strings.TrimPrefix(strconv.Itoa(int(n)), "-")
	if n < 0 {
		return "-" + strings.Repeat("0", max(0, 9-len(text))) + text
	}
	return strings.Repeat("0", max(0, 10-len(text))) + text
}

func TestWhoHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kinds  string
		hold   string // + or -
		aheads []int
	}{
		{"x", "+", []int{0}},
		{"x x x", "+--", []int{0, 1, 2}},
		{"s s x s", "++--", []int{0, 0, 2, 1}},
		{"x s s x s", "+----", []int{0, 1, 1, 3, 2}},
		{"3 2 1 1", "++--", []int{0, 0, 2, 3}},
		{"3 3 1", "+--", []int{0, 1, 2}}, // the one permit could be had, but not before those who came first
		{"1 1 1 1 1 1", "+++++-", []int{0, 0, 0, 0, 0, 5}},
		{"x 1", "+-", []int{0, 1}},
	} {
		for _, from := range []int32{0, math.MaxInt32 - 1, -3, math.MinInt32} { // the numbers turn over
			names := childrenOf(from, c.kinds)
			shuffled := append([]string{"stray"}, names[len(names)/2:]...)
			v := newView(append(shuffled, names[:len(names)/2]...))
			var hold strings.Builder
			for i := range v.children {
				if v.children[i].name != names[i] {
					t.Fatalf("%s from %d: order %v", c.kinds, from, v.children)
				}
				if v.holds(i) {
					hold.WriteByte('+')
				} else {
					hold.WriteByte('-')
				}
				if q := v.queue(i); q.ahead != c.aheads[i] || (q.last == nil) != (q.ahead == 0) {
					t.Errorf("%s: child %d waits for %+v, want %d", c.kinds, i, q, c.aheads[i])
				}
			}
			if hold.String() != c.hold || v.holders() != strings.Count(c.hold, "+") {
				t.Errorf("%s from %d: %s, want %s", c.kinds, from, hold.String(), c.hold)
			}
		}
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]record{
		"hf1 host/1/prog":                    {label: "host/1/prog"},
		"hf1 ":                               {},
		"hf1 a\nin":                          {label: "a", in: true},
		"hf1 a\nbroken ann: host is burning": {label: "a", broken: true, reason: "ann: host is burning"},
		"hf1 a\nin\nbroken why\nvalue 3 10.0.0.1:80 north": {label: "a", in: true, broken: true, reason: "why", seq: 3, value: "10.0.0.1:80 north"},
	} {
		got := parseRecord([]byte(text))
		if got != want || string(got.bytes()) != text {
			t.Errorf("%q: %+v, written %q", text, got, got.bytes())
		}
	}
	if r := parseRecord([]byte("hf1 a\nlater words\nin\n")); r.label != "a" || !r.in {
		t.Errorf("with what is not known: %+v", r)
	}
}
