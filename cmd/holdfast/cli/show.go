package cli

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

func (a *app) showMain(args []string) int {
	var c common
	f := a.newFlags()
	f.common(&c)
	rest, done := f.parse(args)
	if done {
		return exitOK
	}
	name := f.name(rest)
	if f.failed() {
		return exitUsage
	}
	client, err := a.openToLook(context.Background(), &c)
	if err != nil {
		return a.fail(err)
	}
	defer func() { _ = client.Close() }() // it holds nothing
	record, err := client.Inspect(context.Background(), name)
	if err != nil {
		return a.fail(err)
	}
	a.printRecord(&record)
	return exitOK
}

func (a *app) printRecord(r *holdfast.Record) {
	if a.json {
		a.print(newRecordJSON(r))
		return
	}
	switch {
	case len(r.Holders) == 0:
		fmt.Fprintf(a.out, "%s is free\n", printable(r.Name))
	case r.Limit > 0:
		fmt.Fprintf(a.out, "%s is a semaphore, %s permits are held by\n", printable(r.Name), holdersOf(r))
	default:
		fmt.Fprintf(a.out, "%s is held %s by\n", printable(r.Name), modeOf(r))
	}
	for i := range r.Holders {
		fmt.Fprintf(a.out, "  %s\n", describeHolder(&r.Holders[i]))
	}
	if len(r.Waiters) == 0 {
		return
	}
	fmt.Fprintln(a.out, "waiting, first in line first:")
	for i, w := range r.Waiters {
		fmt.Fprintf(a.out, "  %d. %s, %s, for %s\n", i+1, printable(w.Label), w.Mode, short(w.Waited))
	}
}
