package drivertest

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// classWords says what each class rests on and what it may lose.
var classWords = []struct {
	class             driver.Class
	rests, loses, who string
}{
	{
		driver.ClassA, "a majority of servers that agree (consensus)",
		"Nothing while a majority lives. Without one, nobody gets a lock, and leases end.",
		"etcd, ZooKeeper, Hazelcast CP",
	},
	{
		driver.ClassB, "one server or kernel, and a session with it",
		"If the server dies, all locks end with it. A connection that only the server has seen cut may overlap with the next holder by one heartbeat.",
		"file on a local disk, memory, SQL session modes",
	},
	{
		driver.ClassC, "one server that keeps leases on its clock and its data on disk",
		"Two may hold a name if the server's clock is stepped forward, or if it loses data that it had confirmed.",
		"SQL lease modes, Redis with appendfsync always and noeviction",
	},
	{
		driver.ClassD, "best effort",
		"Two may hold a name after a failover, a restart without the last writes, an eviction, or when members of a quorum lose data. Tokens may fall, where there are any. Guard what matters at the resource.",
		"Redis otherwise, Sentinel, Cluster, Redlock and any quorum, memcached, SQL that fails over",
	},
	{
		driver.ClassNone, "nothing", "Everybody is let in while the store is down: by your own choice of fail-open.", "fallback with fail-open",
	},
}

// Guarantees is the page docs/guarantees.md: what the suite proves, in plain
// words, from its tables.
func Guarantees() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from the tables of package drivertest: make docs. Do not edit. -->\n\n# Guarantees\n\n" +
		"What Holdfast promises, law by law, and what each store adds to it or takes from it. Every line below is a case of the\n" +
		"conformance suite (`drivertest`), which each store has to pass. `holdfast doctor` runs the quick ones, marked *, on a\n" +
		"live store. A case that needs an ability runs on the stores that have it; on the others the suite proves that it is\n" +
		"refused.\n")
	writeClasses(&b)
	writeStores(&b)
	writeLaws(&b)
	return b.String()
}

func writeClasses(b *strings.Builder) {
	b.WriteString("\n## Classes\n\nHow strong exclusion and tokens are. `Require` makes `New` and `Open` fail on a store of a lesser class.\n\n" +
		"| class | rests on | may lose | stores |\n|---|---|---|---|\n")
	for _, c := range classWords {
		fmt.Fprintf(b, "| %v | %s | %s | %s |\n", c.class, c.rests, c.loses, c.who)
	}
}

func writeStores(b *strings.Builder) {
	b.WriteString("\n## Stores\n\nWhere several classes are given, the store's settings decide, and the client says which it found.\n\n| store | class | a grant lives by |")
	for _, a := range AbilitiesOf(driver.Abilities{}) {
		fmt.Fprintf(b, " %s |", a.Word)
	}
	b.WriteString(" waiters are woken by |\n|---|---|---|" + strings.Repeat("---|", len(AbilitiesOf(driver.Abilities{}))) + "---|\n")
	for i := range Stores {
		p := &Stores[i]
		name := "`" + p.Scheme + "://`"
		if p.Mode != "" {
			name += " " + p.Mode
		}
		fmt.Fprintf(b, "| %s | %s | %s |", name, classList(p.Classes), boundWord(p))
		for _, a := range AbilitiesOf(p.Abilities) {
			word := ""
			switch {
			case a.Has && p.Below:
				word = "as below"
			case a.Has:
				word = "yes"
			}
			fmt.Fprintf(b, " %s |", word)
		}
		fmt.Fprintf(b, " %s |\n", p.Wakes)
	}
	b.WriteString("\n*as below*: if the stores underneath can. *fair*: served in order of arrival, across processes. *fencing*: grants have tokens\nthat only grow. *value*: a holder can say something that all can read, so elections have `Proclaim`, `Leader` and `Observe`.\n")
}

func classList(classes []driver.Class) string {
	var words []string
	for _, c := range classes {
		words = append(words, c.String())
	}
	return strings.Join(words, " or ")
}

func boundWord(p *Promise) string {
	switch {
	case p.Below:
		return "as below"
	case p.Bound == driver.ByLease:
		return "a lease"
	}
	return "a session or process"
}

func writeLaws(b *strings.Builder) {
	cases := Cases()
	b.WriteString("\n## Laws\n")
	for _, law := range Laws {
		fmt.Fprintf(b, "\n### %s %s\n\n%s\n\n| case | proves | needs |\n|---|---|---|\n", law.ID, law.Name, law.Words)
		for i := range cases {
			c := &cases[i]
			if c.Law != law.ID {
				continue
			}
			mark := ""
			if c.Quick {
				mark = "*"
			}
			fmt.Fprintf(b, "| %s%s | %s | %s |\n", c.ID, mark, c.Rule, c.Needs)
		}
	}
}
