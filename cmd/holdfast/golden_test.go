package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files of testdata/golden anew")

// transcript is what a person would see who typed the commands.
type transcript struct {
	*shop
	text strings.Builder
}

// typed runs a command and writes down what it says. Lines of stderr begin with
// an exclamation mark.
func (tr *transcript) typed(args ...string) result {
	tr.t.Helper()
	r := tr.run(args...)
	fmt.Fprintf(&tr.text, "$ holdfast %s\n%s", strings.Join(args, " "), r.out)
	for line := range strings.Lines(r.err) {
		tr.text.WriteString("! " + line)
	}
	if r.code != 0 {
		fmt.Fprintf(&tr.text, "exit status %d\n", r.code)
	}
	tr.text.WriteString("\n")
	return r
}

// What differs from run to run is replaced by a word.
var volatile = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "OWNER"},
	{regexp.MustCompile(`\b\d{17,19}\b`), "TOKEN"},
	{regexp.MustCompile(`\bfor \d[\dhm.]*s\b`), "for TIME"},
	{regexp.MustCompile(` {2}\d[\dhm.]*s +`), "  TIME  "},
	{regexp.MustCompile(`FOR +HOLDER`), "FOR   HOLDER"},
	{regexp.MustCompile(`this holdfast has .*`), "this holdfast has STORES"},
	{regexp.MustCompile(`"(held|waited)_ms":\d+`), `"${1}_ms":MS`},
	{regexp.MustCompile(`\(by [^)]*\)`), "(by WHO)"},
}

// golden compares the transcript with a file of testdata/golden.
func (tr *transcript) golden(file string) {
	tr.t.Helper()
	got := strings.ReplaceAll(tr.text.String(), tr.dir, "DIR")
	for _, v := range volatile {
		got = v.what.ReplaceAllString(got, v.by)
	}
	path := filepath.Join("testdata", "golden", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tr.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tr.t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		var g, w string
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			tr.t.Fatalf("%s:%d\n got %q\nwant %q\nif it is meant so: go test -run TestGolden -update .", path, i+1, g, w)
		}
	}
}

func newTranscript(t *testing.T) *transcript {
	t.Helper()
	return &transcript{shop: newShop(t)}
}

func TestGoldenHelp(t *testing.T) {
	tr := newTranscript(t)
	help := tr.typed("--help")
	_, verbs, _ := strings.Cut(help.out, "Commands:\n")
	for line := range strings.Lines(verbs) {
		if words := strings.Fields(line); strings.HasPrefix(line, "  ") && len(words) > 0 {
			tr.typed(words[0], "--help")
		}
	}
	tr.golden("help.txt")
}

func TestGoldenLook(t *testing.T) {
	tr := newTranscript(t)
	tr.typed("ls")
	tr.hold("orders/1")
	tr.hold("orders/2", "--shared")
	tr.hold("slots", "--slots", "3")
	token, _ := tr.hold("stuck", "--on-lost", "continue", "--grace", "1h")
	tr.run("break", "stuck", "--token", token, "--reason", "since noon").want(t, 0)
	poll(t, "the break is seen", func() bool { return strings.Contains(tr.run("show", "stuck").out, "broken: ") })
	for _, args := range [][]string{
		{"ls"},
		{"ls", "orders/"},
		{"ls", "--json"},
		{"show", "orders/1"},
		{"show", "orders/2"},
		{"show", "slots"},
		{"show", "stuck"},
		{"show", "free"},
		{"show", "--json", "orders/1"},
		{"show", "--json", "slots"},
		{"show", "--json", "stuck"},
		{"show", "--json", "free"},
	} {
		tr.typed(args...)
	}
	tr.golden("look.txt")
}

func TestGoldenBusy(t *testing.T) {
	tr := newTranscript(t)
	tr.hold("L")
	tr.hold("S", "--slots", "1")
	for _, args := range [][]string{
		{"run", "--wait", "0", "L", "--", "true"},
		{"run", "--wait", "0", "--json", "L", "--", "true"},
		{"run", "--wait", "50ms", "L", "--", "true"},
		{"run", "--wait", "0", "--on-busy", "skip", "L", "--", "true"},
		{"run", "--wait", "0", "--slots", "1", "S", "--", "true"},
		{"run", "S", "--", "true"},
		{"cron", "--one-host", "L", "--", "true"},
		{"cron", "L", "--", "true"},
		{"acquire", "L"},
		{"break", "L", "--token", "1", "--reason", "no such token"},
		{"break", "free", "--token", "1", "--reason", "nobody has it"},
		{"run", "--ttl", "1ms", "--slots", "0", "", "--"},
		{"run", "--store", "file:///no/such/dir", "L", "--", "true"},
		{"run", "--store", "nosuch://h", "L", "--", "true"},
	} {
		tr.typed(args...)
	}
	tr.golden("busy.txt")
}

// Of the cases that doctor lists only the first is kept: there will be more.
func TestGoldenDoctor(t *testing.T) {
	tr := newTranscript(t)
	text, structured := tr.run("doctor"), tr.run("doctor", "--json")
	text.want(t, 0)
	structured.want(t, 0)
	cases := regexp.MustCompile(`(?m)^( {2}holds +G1\.1 .*\n)(?: {2}holds .*\n)*`)
	tr.text.WriteString("$ holdfast doctor\n" + regexp.MustCompile(`\d+ rules hold`).ReplaceAllString(cases.ReplaceAllString(text.out, "$1  …\n"), "N rules hold"))
	var fields map[string]json.RawMessage
	var laws []json.RawMessage
	if err := json.Unmarshal([]byte(structured.out), &fields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(fields["laws"], &laws); err != nil || len(laws) == 0 {
		t.Fatal(err)
	}
	fields["laws"] = append(append(json.RawMessage("["), laws[0]...), ']')
	pretty, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	tr.text.WriteString("\n$ holdfast doctor --json\n" + string(pretty) + "\n")
	tr.golden("doctor.txt")
}
