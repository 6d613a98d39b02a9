package drivertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Promise is what one store promises, in one mode. Taking something back needs
// a page in docs/decisions.
type Promise struct {
	// Scheme is how a URL of it begins, Mode what makes this row of a scheme.
	Scheme, Mode string
	// Store is Properties.Store, one for each row.
	Store string
	// Classes are those that the store may state, best first; which one depends
	// on its settings.
	Classes []driver.Class
	Bound   driver.Bound
	Wait    driver.WaitBy
	driver.Abilities
	// Refuses says that an attempt which arrives after its owner was abandoned
	// is answered Gone. Elsewhere the repeated abandon ends it.
	Refuses bool
	// Wakes is what wakes a waiter.
	Wakes string
	// Below says that the abilities are those of the stores underneath, and
	// these the most that can be had.
	Below bool
}

var allAbilities = driver.Abilities{
	Fair: true, Fencing: true, Shared: true, Permits: true, Handles: true, Break: true, List: true, Inspect: true, Value: true,
}

// Stores is the table of stores and abilities. It was written before the
// drivers, and holds those that are still to come.
var Stores = []Promise{
	{
		Scheme: "file", Store: "file", Classes: []driver.Class{driver.ClassB, driver.ClassD}, Bound: driver.ByConnection, Wait: driver.ByParking, Refuses: true,
		Abilities: driver.Abilities{Fencing: true, Shared: true, Permits: true, Break: true, List: true, Inspect: true, Value: true},
		Wakes:     "the kernel",
	},
	{
		Scheme: "memory", Store: "memory", Classes: []driver.Class{driver.ClassB}, Bound: driver.ByLease, Wait: driver.ByPlaces, Refuses: true,
		Abilities: allAbilities, Wakes: "a channel",
	},
	{
		Scheme: "redis", Store: "redis", Classes: []driver.Class{driver.ClassC, driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPlaces,
		Abilities: allAbilities, Wakes: "hand-over and a message to the one next waiter",
	},
	{
		Scheme: "redis+sentinel", Store: "redis-sentinel", Classes: []driver.Class{driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPlaces,
		Abilities: allAbilities, Wakes: "hand-over and a message to the one next waiter",
	},
	{
		Scheme: "redis+cluster", Store: "redis-cluster", Classes: []driver.Class{driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPlaces, Refuses: true,
		Abilities: allAbilities, Wakes: "hand-over and a message to the one next waiter",
	},
	{
		Scheme: "redlock", Store: "redlock", Classes: []driver.Class{driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPolling,
		Abilities: driver.Abilities{Shared: true, Inspect: true},
		Wakes:     "polling, jittered",
	},
	{
		Scheme: "mysql", Mode: "lease", Store: "mysql", Classes: []driver.Class{driver.ClassC, driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPlaces, Refuses: true,
		Abilities: allAbilities, Wakes: "one poll a process for all names",
	},
	{
		Scheme: "mysql", Mode: "session", Store: "mysql-session", Classes: []driver.Class{driver.ClassB, driver.ClassD}, Bound: driver.ByConnection, Wait: driver.ByParking, Refuses: true,
		Abilities: driver.Abilities{Fencing: true, Shared: true, Permits: true, Break: true, List: true, Inspect: true, Value: true},
		Wakes:     "the server",
	},
	{
		Scheme: "mysql", Mode: "session, GET_LOCK", Store: "mysql-getlock", Classes: []driver.Class{driver.ClassB, driver.ClassD}, Bound: driver.ByConnection, Wait: driver.ByParking, Refuses: true,
		Abilities: driver.Abilities{Fencing: true, Break: true},
		Wakes:     "the server",
	},
	{
		Scheme: "postgres", Mode: "lease", Store: "postgres", Classes: []driver.Class{driver.ClassC, driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPlaces, Refuses: true,
		Abilities: allAbilities, Wakes: "NOTIFY",
	},
	{
		Scheme: "postgres", Mode: "session", Store: "postgres-session", Classes: []driver.Class{driver.ClassB, driver.ClassD}, Bound: driver.ByConnection, Wait: driver.ByParking, Refuses: true,
		Abilities: driver.Abilities{Fencing: true, Shared: true, Permits: true, Break: true, List: true, Inspect: true, Value: true},
		Wakes:     "the server",
	},
	{
		Scheme: "zookeeper", Store: "zookeeper", Classes: []driver.Class{driver.ClassA}, Bound: driver.ByConnection, Wait: driver.ByPlaces, Refuses: true,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Shared: true, Permits: true, Break: true, List: true, Inspect: true, Value: true},
		Wakes:     "a watch on the one before",
	},
	{
		Scheme: "etcd", Store: "etcd", Classes: []driver.Class{driver.ClassA}, Bound: driver.ByLease, Wait: driver.ByPlaces, Refuses: true,
		Abilities: allAbilities, Wakes: "a watch on the one before",
	},
	{
		Scheme: "hazelcast", Store: "hazelcast", Classes: []driver.Class{driver.ClassA, driver.ClassD}, Bound: driver.ByConnection, Wait: driver.ByParking, Refuses: true,
		Abilities: driver.Abilities{Fair: true, Fencing: true, Permits: true},
		Wakes:     "the server",
	},
	{
		Scheme: "memcached", Store: "memcached", Classes: []driver.Class{driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPolling,
		Abilities: driver.Abilities{Handles: true, Break: true, Inspect: true, Value: true},
		Wakes:     "polling, jittered",
	},
	{
		Scheme: "holdfast", Store: "holdfast", Bound: driver.ByLease, Wait: driver.ByPlaces, Refuses: true, Below: true,
		Classes:   []driver.Class{driver.ClassA, driver.ClassB, driver.ClassC, driver.ClassD},
		Abilities: allAbilities, Wakes: "the daemon",
	},
	{
		Scheme: "quorum", Store: "quorum", Classes: []driver.Class{driver.ClassD}, Bound: driver.ByLease, Wait: driver.ByPolling, Below: true,
		Abilities: driver.Abilities{Fencing: true, Shared: true, Inspect: true},
		Wakes:     "polling, jittered",
	},
	{
		Scheme: "fallback", Store: "fallback", Bound: driver.ByLease, Wait: driver.ByPlaces, Below: true,
		Classes:   []driver.Class{driver.ClassA, driver.ClassB, driver.ClassC, driver.ClassD, driver.ClassNone},
		Abilities: driver.Abilities{Fair: true, Shared: true, Permits: true, Handles: true, Break: true, List: true, Inspect: true, Value: true},
		Wakes:     "as the store underneath",
	},
}

func refusesLate(store string) bool {
	return slices.ContainsFunc(Stores, func(row Promise) bool { return row.Store == store && row.Refuses })
}

// keepsPromise compares what a store says of itself with its row and with what
// it implements.
func keepsPromise(store driver.Store) error {
	p := store.Properties()
	i := slices.IndexFunc(Stores, func(row Promise) bool { return row.Store == p.Store })
	if i < 0 {
		return fmt.Errorf("store %q has no row in drivertest.Stores", p.Store)
	}
	row := Stores[i]
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if row.Below {
		most := AbilitiesOf(row.Abilities)
		for k, a := range AbilitiesOf(p.Abilities) {
			if a.Has && !most[k].Has {
				bad("store %q states %s, its row in drivertest.Stores does not", p.Store, a.Word)
			}
		}
	} else if p.Abilities != row.Abilities {
		bad("store %q states %+v, its row in drivertest.Stores promises %+v", p.Store, p.Abilities, row.Abilities)
	}
	if p.Bound != row.Bound && !row.Below {
		bad("store %q is bound by %d, its row says %d", p.Store, p.Bound, row.Bound)
	}
	if p.Wait != row.Wait && !row.Below {
		bad("store %q waits by %d, its row says %d", p.Store, p.Wait, row.Wait)
	}
	if !slices.Contains(row.Classes, p.Class) {
		bad("store %q is of class %v, its row says %v", p.Store, p.Class, row.Classes)
	}
	return errors.Join(append(errs, implements(store, &p)...)...)
}

// implements compares what a store states with its methods.
func implements(store driver.Store, p *driver.Properties) (errs []error) {
	_, lists := store.(driver.Lister)
	_, inspects := store.(driver.Inspector)
	_, breaks := store.(driver.Breaker)
	_, values := store.(driver.Valuer)
	for _, a := range []struct {
		word         string
		stated, done bool
	}{{"list", p.List, lists}, {"inspect", p.Inspect, inspects}, {"break", p.Break, breaks}, {"value", p.Value, values}} {
		if a.stated && !a.done {
			errs = append(errs, fmt.Errorf("store %q states %s and does not implement it", p.Store, a.word))
		}
	}
	return errs
}

// Ability is one of driver.Abilities by its name.
type Ability struct {
	Word string
	Has  bool
}

// AbilitiesOf lists abilities by name, always the same and in one order.
func AbilitiesOf(a driver.Abilities) []Ability {
	return []Ability{
		{"fair", a.Fair},
		{"fencing", a.Fencing},
		{"shared", a.Shared},
		{"permits", a.Permits},
		{"handles", a.Handles},
		{"break", a.Break},
		{"list", a.List},
		{"inspect", a.Inspect},
		{"value", a.Value},
	}
}
