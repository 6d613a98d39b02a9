//go:build linux || darwin

package filelock

import (
	"context"
	"net/url"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { driver.Register("file", openURL) }

// openURL opens file:///dir, and makes the directory if its parent exists.
func openURL(_ context.Context, u *url.URL, _ *driver.OpenOptions) (driver.Store, error) {
	p := driver.NewParams(u)
	opts := &Options{Create: true, Shared: p.Bool("shared")}
	network := p.Take("network")
	opts.AllowNetwork = network == "allow"
	if err := p.Done(); err != nil {
		return nil, err
	}
	switch {
	case network != "" && network != "allow":
		return nil, failf(driver.Invalid, "parameter %q can only be %q", "network", "allow")
	case u.User != nil || u.Fragment != "" || u.Opaque != "" || u.Host != "" && u.Host != "localhost":
		return nil, failf(driver.Invalid, "a file store's URL is file:///directory, without host, user or fragment")
	case u.Path == "" || u.Path[0] != '/':
		return nil, failf(driver.Invalid, "a file store's URL needs an absolute directory: file:///directory")
	}
	return New(u.Path, opts)
}
