// Command docs writes the guarantee table of the suite's tables to a file.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/drivertest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docs FILE")
		os.Exit(64)
	}
	if err := os.WriteFile(os.Args[1], []byte(drivertest.Guarantees()), 0o644); err != nil { //nolint:gosec // a page for everybody
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
