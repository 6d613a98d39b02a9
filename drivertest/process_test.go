package drivertest_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/filelock"
)

func TestMain(m *testing.M) {
	drivertest.Main(func(_ context.Context, dir string) (driver.Store, error) { return filelock.New(dir, nil) })
	os.Exit(m.Run())
}

// The cases with processes need a store that processes share. The rest of the
// suite runs on the file store in its own package.
func TestProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := drivertest.Harness{
		New:   func(context.Context) (driver.Store, error) { return filelock.New(dir, nil) },
		Spawn: drivertest.Self(dir),
	}
	for _, c := range drivertest.Cases() {
		if c.Needs&drivertest.NeedProcesses != 0 && c.Needs&drivertest.NeedLease == 0 {
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				if err := c.Run(t.Context(), h); err != nil {
					t.Errorf("%s\n%v", c.Rule, err)
				}
			})
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := drivertest.Harness{
		New:  func(context.Context) (driver.Store, error) { return filelock.New(dir, nil) },
		Skip: map[string]string{"G1.1": "to see it reported"},
	}
	reported := 0
	err := drivertest.Check(t.Context(), h, func(r drivertest.Result) {
		reported++
		if (r.ID == "G1.1") != (r.Skipped != "") || !strings.HasPrefix(r.ID, r.Law+".") || r.Rule == "" {
			t.Errorf("result %+v", r)
		}
	})
	if err != nil || reported < 15 {
		t.Errorf("%d results: %v", reported, err)
	}
}
