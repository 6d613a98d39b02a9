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
// reference version; some of them for HOLDFAST_FULL alone.
var deployments = []struct {
	name string
	full bool
	url  func(testing.TB) string
}{
	{"redis 6.2", false, plain(redistest.Redis62)},
	{"valkey 9.1", false, plain(redistest.Valkey91)},
	{"sentinel", false, watched},
	{"cluster", false, clustered(redistest.Default)},
	{"cluster of redis 6.2", false, clustered(redistest.Redis62)},
	{"cluster of valkey 9.1", false, clustered(redistest.Valkey91)},
	{"with a replica that acknowledges", false, acknowledged(redistest.Default)},
	{"with a replica, redis 6.2", true, acknowledged(redistest.Redis62)},
	{"with a replica, valkey 9.1", true, acknowledged(redistest.Valkey91)},
	{"TLS", true, encrypted},
	{"TLS before redis 6.2", true, terminated(redistest.Redis62)},
	{"TLS before valkey 9.1", true, terminated(redistest.Valkey91)},
}

func plain(v redistest.Version) func(testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		return versionServer(tb, v).url()
	}
}

func watched(tb testing.TB) string {
	tb.Helper()
	return ownReplicated(tb).URL()
}

func clustered(v redistest.Version) func(testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		return ownCluster(tb, v, false).URL()
	}
}

func acknowledged(v redistest.Version) func(testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		url, _ := ownPair(tb, v)
		return url
	}
}

func encrypted(tb testing.TB) string {
	tb.Helper()
	a := newAuthority(tb)
	s, err := redistest.StartTLS(redistest.Default, a.servers())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	ca, mine := a.trusting()
	return "rediss://" + s.TLSAddr() + ca + mine
}

// terminated is for the servers that are built without TLS: another program speaks it
// for them.
func terminated(v redistest.Version) func(testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		a := newAuthority(tb)
		p, err := redistest.StartTLSProxy(versionServer(tb, v).Server, a.servers())
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(p.Close)
		ca, _ := a.trusting()
		return p.URL() + ca
	}
}

// TestConformanceElsewhere runs the quick cases of the suite on each, and all of
// them if HOLDFAST_FULL is set.
func TestConformanceElsewhere(t *testing.T) {
	t.Parallel()
	full := os.Getenv("HOLDFAST_FULL") != ""
	for _, d := range deployments {
		if d.full && !full {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			if !full { // the full suite keeps the machine busy by itself
				t.Parallel()
			}
			url := d.url(t)
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
