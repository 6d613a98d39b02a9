// Package drivertest is the conformance suite: one table of cases that every
// store must pass, each of which names the law that it proves.
//
// A driver's test runs it:
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		drivertest.Run(t, drivertest.Harness{
//			New: func(context.Context) (driver.Store, error) { return filelock.New(dir, nil) },
//		})
//	}
//
// A program that has a live store and no testing.T, such as `holdfast doctor`,
// calls [Check] for the quick cases. [Benchmark] measures a store.
//
// Each case starts from a way in which real clients of real stores have
// failed, uses at least two clients of the one store, takes fresh names, and
// runs alone, in parallel and in any order. Some cases speak to the
// driver.Store: they prove what the contract asks of a driver. The others use
// holdfast.Client over it: they prove what users are promised.
//
// What a store can do is written in [Stores]; Run fails if a driver promises
// more or less than that. What a store cannot do, it must refuse. The guarantee
// table in docs/guarantees.md is generated from both tables.
//
// The suite itself is proven by broken stores, each with one fault
// (mutants_test.go): each must fail the cases that name it in Case.Kills, and
// no other.
package drivertest

//go:generate go run ./internal/docs ../docs/guarantees.md
