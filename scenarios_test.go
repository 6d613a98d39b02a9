package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/drivertest"
)

var (
	scenarioRow    = regexp.MustCompile(`^\| (B\d{3}) \| [^|]+ \| (.+) \|$`)
	scenarioProof  = regexp.MustCompile("`([^`]+)`")
	scenarioCited  = regexp.MustCompile(`\bB\d{3}\b`)
	suiteCase      = regexp.MustCompile(`^[A-Z]\d+\.\d+$`)
	testOfAPackage = regexp.MustCompile(`^([a-z/0-9]+)\.(Test\w+)$`)
)

// Every scenario of docs/scenarios.md names what shows it, and all that is named
// exists; and every number that a test cites is there.
func TestScenariosPage(t *testing.T) {
	page, err := os.ReadFile("docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, c := range drivertest.Cases() {
		cases[c.ID] = true
	}
	tests := map[string]string{} // the tests of a folder, as text
	seen := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		row := scenarioRow.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil {
			if strings.HasPrefix(line, "| B") {
				t.Errorf("no row: %s", line)
			}
			continue
		}
		id, proofs := row[1], scenarioProof.FindAllStringSubmatch(row[2], -1)
		if seen[id] || len(proofs) == 0 {
			t.Errorf("%s: twice, or without a test", id)
		}
		seen[id] = true
		for _, proof := range proofs {
			if suiteCase.MatchString(proof[1]) && cases[proof[1]] {
				continue
			}
			named := testOfAPackage.FindStringSubmatch(proof[1])
			if len(named) == 0 || !strings.Contains(testsOf(t, tests, named[1]), "\nfunc "+named[2]+"(t *testing.T)") {
				t.Errorf("%s: there is no %s", id, proof[1])
			}
		}
	}
	for _, file := range testFiles(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range scenarioCited.FindAllString(string(b), -1) {
			if !seen[id] {
				t.Errorf("%s cites %s, which is not on the page", file, id)
			}
		}
	}
}

// testsOf is the text of all tests in a folder; the root is called by its
// package's name.
func testsOf(t *testing.T, known map[string]string, folder string) string {
	t.Helper()
	if text, ok := known[folder]; ok {
		return text
	}
	dir := folder
	if folder == "holdfast" {
		dir = "."
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known[folder] += string(b)
	}
	return known[folder]
}

// testFiles are the tests of all modules.
func testFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "*/*/*_test.go", "*/*/*/*_test.go", "drivertest/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.Compact(files)
}
