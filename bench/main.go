// Command bench compares Holdfast with other lock libraries and with the floor
// of each store (the cheapest operations that do the job), side by side: every
// round runs all contestants in turn, and what counts is the median of the
// rounds and its ratio to another contestant's. It is never released.
//
//	make bench                        # all
//	cd bench && go run . pair         # those whose name contains "pair"
//	cd bench && go run . -core pair   # on one core
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// rounds should be odd, so that the median is a measured figure.
var rounds = 7

// comparison is contestants that do the same job.
type comparison struct {
	name, unit  string
	contestants []contestant
	targets     []target
}

// contestant does the job once and returns its figure, by name; the first is
// the one that is compared, more (e.g. a fairness index) are printed with it.
type contestant struct {
	name string
	run  func() (figure float64, more map[string]float64, err error)
}

// target is a bound that a figure should keep: contestant's figure (or one of
// its more figures) to another's, or to a number.
type target struct {
	contestant, more string
	over             string // the other contestant; "" compares with 1
	atMost, atLeast  float64
}

func main() {
	if worker() {
		return
	}
	flag.IntVar(&rounds, "rounds", rounds, "how often each contestant runs")
	write := flag.String("write", "", "also write the results, as Markdown, to this file; with -core, at its end")
	core := flag.Bool("core", false, "run all on one core")
	flag.Parse()
	if *core {
		if err := onOneCore(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	status := compare(dir, flag.Args(), *write, *core)
	stopRedis()
	stopEtcd()
	stopZooKeeper()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(status)
}

// compare measures what was asked for, in a scratch folder.
func compare(dir string, words []string, write string, core bool) (status int) {
	out, mode := &report{}, os.O_TRUNC
	if core {
		mode = os.O_APPEND
		out.printf("# On one core\n\n")
	} else {
		out.text.WriteString(header)
	}
	out.printf("Measured %s on %d cores, %s, median of %d interleaved rounds.\n\n", time.Now().Format("2006-01-02"), runtime.NumCPU(), runtime.Version(), rounds)
	missed := 0
	for _, c := range comparisons(dir) {
		if !chosen(c.name, words) {
			continue
		}
		if err := c.measure(out, &missed); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", c.name, err)
			return 1
		}
	}
	if write != "" {
		if err := out.save(write, mode); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}
	fmt.Printf("%d targets missed\n", missed)
	return 0
}

func chosen(name string, words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
}

const header = `# Benchmarks

Made by ` + "`make bench`" + `; run it again to repeat. A ratio compares medians of one run: absolute figures differ from
machine to machine, and from hour to hour. How each job is done is in the folder bench.

`

type report struct{ text strings.Builder }

func (r *report) printf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	fmt.Print(line)
	r.text.WriteString(line)
}

func (r *report) save(path string, mode int) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|mode, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(r.text.String())
	return errors.Join(err, file.Close())
}

// results are the figures of all rounds, by contestant.
type results struct {
	figures map[string][]float64
	more    map[string]map[string][]float64
	failed  map[string]error // of other libraries: some give up under this load
}

// measure runs all rounds and prints a table and the targets.
func (c *comparison) measure(out *report, missed *int) error {
	r, err := c.run()
	if err != nil {
		return err
	}
	out.printf("## %s\n\n| | %s | to the first | |\n|---|---|---|---|\n", c.name, c.unit)
	floor := median(r.figures[c.contestants[0].name])
	for _, one := range c.contestants {
		r.row(out, one.name, floor)
	}
	out.printf("\n")
	for _, t := range c.targets {
		r.judge(out, t, missed)
	}
	out.printf("\n")
	return nil
}

func (c *comparison) run() (*results, error) {
	r := &results{figures: map[string][]float64{}, more: map[string]map[string][]float64{}, failed: map[string]error{}}
	for range rounds {
		for _, one := range c.contestants {
			if r.failed[one.name] != nil {
				continue
			}
			hugePages()
			figure, extras, err := one.run()
			if err != nil {
				if strings.HasPrefix(one.name, ours) {
					return nil, fmt.Errorf("%s: %w", one.name, err)
				}
				r.failed[one.name] = err
				continue
			}
			r.figures[one.name] = append(r.figures[one.name], figure)
			for key, value := range extras {
				if r.more[one.name] == nil {
					r.more[one.name] = map[string][]float64{}
				}
				r.more[one.name][key] = append(r.more[one.name][key], value)
			}
		}
	}
	return r, nil
}

func (r *results) row(out *report, name string, floor float64) {
	if err := r.failed[name]; err != nil {
		out.printf("| %s | failed | | %s |\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	m := median(r.figures[name])
	var notes []string
	for _, key := range slices.Sorted(maps.Keys(r.more[name])) {
		notes = append(notes, fmt.Sprintf("%s %.3f", key, median(r.more[name][key])))
	}
	out.printf("| %s | %s | %.2f | %s |\n", name, number(m), m/floor, strings.Join(notes, ", "))
}

func (r *results) judge(out *report, t target, missed *int) {
	if r.failed[t.over] != nil {
		out.printf("- %s to %s: not compared, as that failed\n", t.contestant, t.over)
		return
	}
	values := r.figures[t.contestant]
	what := t.contestant
	if t.more != "" {
		values, what = r.more[t.contestant][t.more], what+", "+t.more
	}
	got := median(values)
	if t.over != "" {
		got /= median(r.figures[t.over])
		what += " to " + t.over
	}
	bound, ok := "at most "+number(t.atMost), got <= t.atMost
	if t.atLeast != 0 {
		bound, ok = "at least "+number(t.atLeast), got >= t.atLeast
	}
	verdict := "reached"
	if !ok {
		verdict = "**missed**"
		*missed++
	}
	out.printf("- %s: %s, target %s: %s\n", what, number(got), bound, verdict)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
