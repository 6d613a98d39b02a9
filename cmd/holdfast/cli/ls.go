package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func (a *app) lsMain(args []string) int {
	var c common
	prefix, code, ok := a.parsePrefix(args, &c)
	if !ok {
		return code
	}
	client, err := a.openToLook(context.Background(), &c)
	if err != nil {
		return a.fail(err)
	}
	defer func() { _ = client.Close() }() // it holds nothing
	records, err := list(context.Background(), client, prefix)
	if err != nil {
		return a.fail(err)
	}
	a.printList(records, client.Properties().Wait == driver.ByPlaces)
	return exitOK
}

// parsePrefix reads the arguments of ls and watch.
func (a *app) parsePrefix(args []string, c *common) (prefix string, code int, ok bool) {
	f := a.newFlags()
	f.common(c)
	rest, done := f.parse(args)
	if done {
		return "", exitOK, false
	}
	if len(rest) > 0 {
		prefix = f.one("PREFIX", rest)
	}
	if f.failed() {
		return "", exitUsage, false
	}
	return prefix, exitOK, true
}

// list lists the names under a prefix in order.
func list(ctx context.Context, client *holdfast.Client, prefix string) ([]holdfast.Record, error) {
	var records []holdfast.Record
	for r, err := range client.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(x, y holdfast.Record) int { return cmp.Compare(x.Name, y.Name) })
	return records, nil
}

// printList prints a table; queue: the store tells who waits.
func (a *app) printList(records []holdfast.Record, queue bool) {
	if a.json {
		for i := range records {
			a.print(newRecordJSON(&records[i]))
		}
		return
	}
	if len(records) == 0 {
		return
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tMODE\tHOLDERS\tWAITERS\tFOR\tHOLDER")
	for i := range records {
		r := &records[i]
		since, who, waiters := "-", "-", "-"
		if queue {
			waiters = strconv.Itoa(len(r.Waiters))
		}
		if len(r.Holders) > 0 {
			who = printable(cmp.Or(r.Holders[0].Label, r.Holders[0].Owner))
			if r.Holders[0].Broken != "" {
				who += " (broken)"
			}
			if r.Holders[0].Owner != "" { // else nothing is known of the grant
				since = short(r.Holders[0].Held)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(r.Name), modeOf(r), holdersOf(r), waiters, since, who)
	}
	_ = table.Flush() // a.out keeps the error
}

func modeOf(r *holdfast.Record) string {
	if r.Mode == 0 {
		return "-"
	}
	return r.Mode.String()
}

// holdersOf is how many hold it, for a semaphore of how many permits.
func holdersOf(r *holdfast.Record) string {
	if r.Limit == 0 {
		return strconv.Itoa(len(r.Holders))
	}
	taken := 0
	for i := range r.Holders {
		taken += r.Holders[i].Permits
	}
	return fmt.Sprintf("%d/%d", taken, r.Limit)
}
