// Command leases is holdfast with one more store, lease://: in memory like
// memory://, but not refused. The tests run commands on it under a lease.
package main

import (
	"context"
	"net/url"
	"os"

	"github.com/holdfast-go/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

func main() {
	driver.Register("lease", func(context.Context, *url.URL, *driver.OpenOptions) (driver.Store, error) {
		return memlock.New(), nil
	})
	os.Exit(cli.Main(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
