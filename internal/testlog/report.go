package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is one line of go test -json; see go doc test2json.
type event struct{ Action, Package, Test, Output string }

// skip is a test that was skipped, and why.
type skip struct{ pkg, test, reason string }

// reporter keeps the output of each test until its end is known: only then is
// it clear whether anybody wants to read it.
type reporter struct {
	out     io.Writer
	pending map[string]*pkgLog
	skips   []skip
}

// pkgLog is what a package has said so far: lines of its own, and those of
// each of its tests.
type pkgLog struct {
	own   []string
	tests map[string][]string
	order []string // of the tests, by their first line
}

// report prints what is worth reading of a run and returns its skips.
func report(in io.Reader, out io.Writer) ([]skip, error) {
	r := &reporter{out: out, pending: map[string]*pkgLog{}}
	lines := bufio.NewReader(in) // not a Scanner: a line may be of any length
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil {
			r.handle(e)
		} else {
			fmt.Fprintf(out, "%s", line) // go itself speaks plainly, e.g. of a broken go.mod
		}
		if err == io.EOF {
			return r.skips, nil
		}
		if err != nil {
			return r.skips, fmt.Errorf("read the test log: %w", err)
		}
	}
}

func (r *reporter) handle(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.log(e.Package).add(e.Test, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
	}
}

func (r *reporter) log(pkg string) *pkgLog {
	l := r.pending[pkg]
	if l == nil {
		l = &pkgLog{tests: map[string][]string{}}
		r.pending[pkg] = l
	}
	return l
}

func (l *pkgLog) add(test, line string) {
	if test == "" {
		l.own = append(l.own, line)
		return
	}
	if _, ok := l.tests[test]; !ok {
		l.order = append(l.order, test)
	}
	l.tests[test] = append(l.tests[test], line)
}

func (r *reporter) endTest(e event) {
	l := r.log(e.Package)
	switch e.Action {
	case "fail":
		r.print(l.tests[e.Test])
	case "skip":
		r.skips = append(r.skips, skip{e.Package, e.Test, reason(l.tests[e.Test])})
	}
	l.tests[e.Test] = nil
}

// endPackage prints the closing line, or all that is left if the package
// failed: the tests without an end are those that a panic or the timeout cut.
func (r *reporter) endPackage(e event) {
	l := r.log(e.Package)
	delete(r.pending, e.Package)
	if e.Action != "fail" {
		if n := len(l.own); n > 0 {
			r.print(l.own[n-1:])
		}
		return
	}
	for _, test := range l.order {
		r.print(l.tests[test])
	}
	r.print(l.own)
}

func (r *reporter) print(lines []string) {
	for _, line := range lines {
		fmt.Fprint(r.out, line)
	}
}

// reason is what a test said before it was skipped, without the lines that the
// test framework adds.
func reason(lines []string) string {
	var said []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}
