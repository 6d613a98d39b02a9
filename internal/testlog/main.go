// Command testlog reads the output of go test -json and prints what go test
// prints without -v: the closing line of every package and the output of what
// failed. At the end it lists every skipped test with its reason.
//
//	go test -json ./... | go run ./internal/testlog -allow .ci/skips -strict
//
// With -strict, a skip that the allow-file does not name is a failure: a test
// that nobody runs any more proves nothing and looks green. The status of go
// test itself is not seen here: use set -o pipefail.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	allow := flag.String("allow", "", "`file` that names the skips that are allowed")
	strict := flag.Bool("strict", false, "fail on a skip that is not allowed")
	flag.Parse()
	if err := run(*allow, *strict, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
}

func run(allowFile string, strict bool, in io.Reader, out io.Writer) error {
	allowed, err := readAllowed(allowFile)
	// A broken allow-file must not hide what the tests say.
	skips, readErr := report(in, out)
	err = errors.Join(err, readErr)

	fmt.Fprintf(out, "\n%d tests skipped\n", len(skips))
	for _, s := range skips {
		mark := ""
		if !allowed.has(s) {
			mark = " [not in the list of allowed skips]"
			if strict {
				err = errors.Join(err, fmt.Errorf("skip not allowed: %s %s", s.pkg, s.test))
			}
		}
		fmt.Fprintf(out, "  %s %s%s\n      %s\n", s.pkg, s.test, mark, s.reason)
	}
	return err
}
