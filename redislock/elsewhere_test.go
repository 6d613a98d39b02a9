package redislock

import (
	"context"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// deployments are where the store must be the same as on one server of the
// reference version.
var deployments = []string{"redis 6.2", "valkey 9.1", "sentinel", "cluster", "cluster of redis 6.2", "cluster of valkey 9.1", "with a replica that acknowledges"}

func deploy(tb testing.TB, name string) (url string) {
	tb.Helper()
	switch name {
	case "redis 6.2":
		return versionServer(tb, redistest.Redis62).url()
	case "valkey 9.1":
		return versionServer(tb, redistest.Valkey91).url()
	case "sentinel":
		return ownReplicated(tb).URL()
	case "with a replica that acknowledges":
		url, _ = ownPair(tb, redistest.Default)
		return url
	case "cluster of redis 6.2":
		return ownCluster(tb, redistest.Redis62, false).URL()
	case "cluster of valkey 9.1":
		return ownCluster(tb, redistest.Valkey91, false).URL()
	}
	return ownCluster(tb, redistest.Default, false).URL()
}

// TestConformanceElsewhere runs the quick cases of the suite on each, and all of
// them if HOLDFAST_FULL is set.
func TestConformanceElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range deployments {
		t.Run(name, func(t *testing.T) {
			full := os.Getenv("HOLDFAST_FULL") != ""
			if !full { // the full suite keeps the machine busy by itself
				t.Parallel()
			}
			url := deploy(t, name)
			h := drivertest.Harness{
				New:   func(ctx context.Context) (driver.Store, error) { return openURL(ctx, url) },
				Spawn: drivertest.Self(url),
			}
			if full {
				drivertest.Run(t, h)
				return
			}
			_ = drivertest.Check(t.Context(), h, func(r drivertest.Result) { // it tells of each
				if r.Err != nil {
					t.Errorf("%s, law %s: %s\n%v", r.ID, r.Law, r.Rule, r.Err)
				}
			})
		})
	}
}

func ownReplicated(tb testing.TB) *redistest.Replicated {
	tb.Helper()
	r, err := redistest.StartSentinel(redistest.Default)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Remove)
	return r
}

func ownCluster(tb testing.TB, v redistest.Version, replicas bool) *redistest.Cluster {
	tb.Helper()
	c, err := redistest.StartCluster(v, replicas)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Remove)
	return c
}
