package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run of two packages: one passes with two skips and some chatter, one fails
// in one test and is cut short in another. The last line is not JSON.
const run1 = `{"Action":"run","Package":"github.com/holdfast-go/holdfast/a","Test":"TestFine"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Test":"TestFine","Output":"chatter\n"}
{"Action":"pass","Package":"github.com/holdfast-go/holdfast/a","Test":"TestFine"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Test":"TestOld","Output":"=== RUN   TestOld\n"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Test":"TestOld","Output":"    a_test.go:7: no server\n"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Test":"TestOld","Output":"--- SKIP: TestOld (0.00s)\n"}
{"Action":"skip","Package":"github.com/holdfast-go/holdfast/a","Test":"TestOld"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Test":"TestOdd/sub","Output":"--- SKIP: TestOdd/sub (0.00s)\n"}
{"Action":"skip","Package":"github.com/holdfast-go/holdfast/a","Test":"TestOdd/sub"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/a","Output":"ok  \tgithub.com/holdfast-go/holdfast/a\t0.1s\n"}
{"Action":"pass","Package":"github.com/holdfast-go/holdfast/a"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/b","Test":"TestBad","Output":"    b_test.go:9: wrong token\n"}
{"Action":"fail","Package":"github.com/holdfast-go/holdfast/b","Test":"TestBad"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/b","Test":"TestCut","Output":"panic: boom\n"}
{"Action":"output","Package":"github.com/holdfast-go/holdfast/b","Output":"FAIL\tgithub.com/holdfast-go/holdfast/b\t0.2s\n"}
{"Action":"fail","Package":"github.com/holdfast-go/holdfast/b"}
go: a word of go itself
`

const report1 = "ok  \tgithub.com/holdfast-go/holdfast/a\t0.1s\n" +
	"    b_test.go:9: wrong token\n" +
	"panic: boom\n" +
	"FAIL\tgithub.com/holdfast-go/holdfast/b\t0.2s\n" +
	"go: a word of go itself\n" +
	`
2 tests skipped
  github.com/holdfast-go/holdfast/a TestOld
      a_test.go:7: no server
  github.com/holdfast-go/holdfast/a TestOdd/sub [not in the list of allowed skips]
      no reason given
`

func TestReport(t *testing.T) {
	allow := allowFile(t, "# comment\n\na TestOld no server in this test\n")
	for _, tc := range []struct {
		name, allow, wantErr string
		strict               bool
	}{
		{"lenient", allow, "", false},
		{"strict", allow, "skip not allowed: github.com/holdfast-go/holdfast/a TestOdd/sub", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := run(tc.allow, tc.strict, strings.NewReader(run1), &out)
			if got := errText(err); got != tc.wantErr {
				t.Errorf("error %q, want %q", got, tc.wantErr)
			}
			if out.String() != report1 {
				t.Errorf("got:\n%s\nwant:\n%s", out.String(), report1)
			}
		})
	}
}

func TestAllowed(t *testing.T) {
	list, err := readAllowed(allowFile(t, ". TestA a reason\nb/c TestB/* a reason\n"))
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[skip]bool{
		{pkg: modulePath, test: "TestA"}:              true,
		{pkg: modulePath, test: "TestAB"}:             false,
		{pkg: modulePath + "/b/c", test: "TestB"}:     false,
		{pkg: modulePath + "/b/c", test: "TestB/x/y"}: true,
		{pkg: modulePath + "/b", test: "TestB/x"}:     false,
	} {
		if got := list.has(s); got != want {
			t.Errorf("%s %s allowed: %v, want %v", s.pkg, s.test, got, want)
		}
	}
}

func TestAllowedNeedsAReason(t *testing.T) {
	file := allowFile(t, "a TestA because\nb TestB\n")
	want := file + ":2: want: package test reason"
	if _, err := readAllowed(file); errText(err) != want {
		t.Errorf("error %q, want %q", errText(err), want)
	}
}

func allowFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
