package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func (a *app) versionMain(args []string) int {
	f := a.newFlags()
	rest, done := f.parse(args)
	if done {
		return exitOK
	}
	f.none(rest)
	if f.failed() {
		return exitUsage
	}
	version, schemes := moduleVersion(), driver.Schemes()
	if a.json {
		a.print(map[string]any{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "stores": schemes})
		return exitOK
	}
	fmt.Fprintf(a.out, "holdfast %s, %s %s/%s\nstores: %s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(schemes, ", "))
	return exitOK
}

// moduleVersion is what the go command stamped: the version of go install
// module@version, or what it made of the checkout's commit.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "unreleased"
	}
	return info.Main.Version
}
