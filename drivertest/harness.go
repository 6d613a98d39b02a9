package drivertest

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Harness tells the suite how to reach a store, and what it may do to it.
type Harness struct {
	// New makes a new client of the same store at each call. The suite closes
	// it.
	New func(ctx context.Context) (driver.Store, error)
	// Spawn makes a command that becomes another process with a client of the
	// same store; see [Self]. Nil: the cases about processes do not run.
	Spawn func(ctx context.Context) *exec.Cmd
	// Restart stops the store's server and starts it again with its data. Nil:
	// the cases about restarts do not run.
	Restart func(ctx context.Context) error
	// Skip maps the id of a case that cannot pass here to the reason, which is
	// printed.
	Skip map[string]string
	// TTL is the shortest with which grants should be seen to lapse; default
	// 500 ms. The store's own minimum wins if it is longer.
	TTL time.Duration
	// Patient says that time costs nothing (the store runs on a bubble's clock),
	// so that cases may wait for minutes.
	Patient bool
	// Sequential runs one case at a time instead of eight.
	Sequential bool
}

// Result is what became of one case.
type Result struct {
	ID, Law, Rule string
	Skipped       string // the harness's reason
	Err           error  // what is wrong, nil if nothing is
}

// Case is one thing that every store must do which has what it needs.
type Case struct {
	// ID is the law and a number, e.g. "G1.3". It is never used again for
	// something else.
	ID  string
	Law string
	// Rule says in one plain sentence what must hold.
	Rule  string
	Needs Need
	// Kills names the broken stores of mutants_test.go which fail this case.
	Kills []string
	// Quick cases are run by Check.
	Quick bool
	// About tells what the case proves, where no broken store can fail it.
	About About
	Func  func(*T)
}

// About is what a case is about.
type About uint8

// What a case is about.
const (
	AboutStore  About = iota // the store, alone or under the client
	AboutClient              // package holdfast over the store: only a fault of the package fails it
	AboutInput               // what is refused before any store is asked
)

// Need is what a store or harness must have for a case to apply.
type Need uint32

// What a case may need.
const (
	NeedLease   Need = 1 << iota // grants end with their window
	NeedSession                  // grants end with a connection or process
	NeedQueue                    // places in the store, with signals
	NeedBlock                    // waits in the store
	NeedBatch                    // many requests in one exchange
	NeedRefusal                  // an abandoned owner is refused, by its row in Stores
	NeedFair
	NeedFencing
	NeedShared
	NeedPermits
	NeedHandles
	NeedBreak
	NeedList
	NeedInspect
	NeedValue
	NeedWatch     // tells of values by itself
	NeedProcesses // Harness.Spawn
	NeedRestart   // Harness.Restart
	NeedPatience  // Harness.Patient
)

var needWords = []string{
	"lease", "session", "queue", "block", "batch", "refusal", "fair", "fencing", "shared", "permits",
	"handles", "break", "list", "inspect", "value", "watch", "processes", "restart", "patience",
}

func (n Need) String() string {
	var words []string
	for i, word := range needWords {
		if n&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

// has is everything that a store under this harness offers.
func (h *Harness) has(store driver.Store) Need {
	_, batch := store.(driver.Batcher)
	_, watch := store.(driver.Watcher)
	p := store.Properties()
	var has Need
	for _, offer := range []struct {
		offered bool
		need    Need
	}{
		{p.Bound == driver.ByLease, NeedLease},
		{p.Bound == driver.ByConnection, NeedSession},
		{p.Wait == driver.ByPlaces, NeedQueue},
		{p.Wait == driver.ByParking, NeedBlock},
		{batch, NeedBatch},
		{refusesLate(p.Store), NeedRefusal},
		{p.Fair, NeedFair},
		{p.Fencing, NeedFencing},
		{p.Shared, NeedShared},
		{p.Permits, NeedPermits},
		{p.Handles, NeedHandles},
		{p.Break, NeedBreak},
		{p.List, NeedList},
		{p.Inspect, NeedInspect},
		{p.Value, NeedValue},
		{p.Value && watch, NeedWatch},
		{h.Spawn != nil, NeedProcesses},
		{h.Restart != nil, NeedRestart},
		{h.Patient, NeedPatience},
	} {
		if offer.offered {
			has |= offer.need
		}
	}
	return has
}

// ttl is the shortest sensible TTL on a store.
func (h *Harness) ttl(p *driver.Properties) time.Duration {
	ttl := h.TTL
	if ttl == 0 {
		ttl = 500 * time.Millisecond
	}
	return max(ttl, p.MinTTL, p.Granularity)
}
