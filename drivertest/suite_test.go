package drivertest_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
)

// The reference store passes every case, on a bubble's clock, where it takes
// no time and a goroutine that is left behind is a failure.
func TestMemlock(t *testing.T) {
	t.Parallel()
	drivertest.RunIn(t, memHarness, synctest.Test)
}

// memHarness is an in-memory store of its own for each case: what lives in a
// bubble must not be seen by another.
func memHarness() drivertest.Harness {
	return drivertest.Harness{New: memStores(), Patient: true}
}

func memStores() func(context.Context) (driver.Store, error) {
	server := memlock.NewServer()
	return func(context.Context) (driver.Store, error) { return server.Store(), nil }
}

// The suite proves what it says: each broken store fails the cases that name
// it, and no other.
func TestMutants(t *testing.T) {
	t.Parallel()
	cases := drivertest.Cases()
	expected := map[string][]string{}
	for _, c := range cases {
		for _, name := range c.Kills {
			expected[name] = append(expected[name], c.ID)
		}
	}
	// What the unbroken store fails, TestMemlock says.
	known := failures(t, mutant{breakIt: func(*broken) {}}, cases)
	for _, m := range mutants {
		want := expected[m.name]
		delete(expected, m.name)
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			failed := slices.DeleteFunc(failures(t, m, cases), func(id string) bool { return slices.Contains(known, id) })
			failed = slices.DeleteFunc(failed, func(id string) bool {
				return slices.Contains(crowds, id) && !slices.Contains(want, id)
			})
			if !slices.Equal(failed, want) {
				t.Errorf("%s\nfails %v\nwant  %v", m.fault, failed, want)
			}
			if len(failed) == 0 {
				t.Errorf("%s: nothing fails", m.fault)
			}
		})
	}
	for name, ids := range expected {
		t.Errorf("cases %v kill %q, which is no mutant", ids, name)
	}
}

// A store that cannot refuse an attempt which arrives after its abandon passes,
// if its row in the table says so: the repeated abandon ends what it got.
func TestStoreThatCannotRefuse(t *testing.T) {
	t.Parallel()
	lenient := mutant{breakIt: func(b *broken) {
		b.properties = func(p *driver.Properties) { p.Store = "redis" } // a row without Refuses
		b.release = func(ctx context.Context, r *driver.ReleaseRequest) (bool, error) {
			r.Abandon = false
			return b.full.Release(ctx, r)
		}
	}}
	cases := slices.DeleteFunc(drivertest.Cases(), func(c drivertest.Case) bool { return c.Needs&drivertest.NeedRefusal != 0 })
	if failed := failures(t, lenient, cases); len(failed) != 0 {
		t.Errorf("fails %v", failed)
	}
}

// crowds are cases of many goroutines. Beyond what they surely find, they find
// other faults on some schedules.
var crowds = []string{"G1.2", "G1.3", "G1.6", "G1.7", "G1.8", "G3.8", "W2.1", "W2.2", "W5.2", "W6.2", "V2.1", "V2.5", "V2.8", "V2.11"}

// failures runs all cases that the reference store passes on a broken one.
func failures(t *testing.T, m mutant, cases []drivertest.Case) (failed []string) {
	t.Helper()
	const absent = drivertest.NeedSession | drivertest.NeedBlock | drivertest.NeedProcesses | drivertest.NeedRestart
	for _, c := range cases {
		if c.Needs&absent != 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			h := drivertest.Harness{New: newBroken(m.breakIt), Patient: true}
			if err := c.Run(t.Context(), h); err != nil {
				failed = append(failed, c.ID)
				t.Logf("%s: %v", c.ID, err)
			}
		})
	}
	return failed
}

// Each case fails on some broken store, or says why none can fail it.
func TestEachCaseKills(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	laws := map[string]bool{}
	for _, law := range drivertest.Laws {
		laws[law.ID] = true
	}
	for _, c := range drivertest.Cases() {
		if seen[c.ID] || !laws[c.Law] || c.Rule == "" || c.Func == nil {
			t.Errorf("case %s: repeated, or without law, rule or func", c.ID)
		}
		seen[c.ID] = true
		const elsewhere = drivertest.NeedSession | drivertest.NeedBlock | drivertest.NeedProcesses | drivertest.NeedRestart
		if len(c.Kills) == 0 && c.About == drivertest.AboutStore && c.Needs&elsewhere == 0 {
			t.Errorf("case %s kills no mutant", c.ID)
		}
	}
}

// docs/guarantees.md says what the tables say.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != drivertest.Guarantees() {
		t.Error("docs/guarantees.md is out of date: make docs")
	}
}

func BenchmarkMemlock(b *testing.B) { drivertest.Benchmark(b, memHarness()) }
