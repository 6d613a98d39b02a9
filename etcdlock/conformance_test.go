package etcdlock

import (
	"context"
	"net/url"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/etcdtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, ownServer(t))
}

// The quick cases on three servers, and with HOLDFAST_FULL all of them, on the
// oldest version too.
func TestConformanceElsewhere(t *testing.T) {
	t.Parallel()
	if !full() {
		c := ownCluster(t, etcdtest.Default, 3)
		h := drivertest.Harness{New: func(ctx context.Context) (driver.Store, error) { return openURL(ctx, c.URL()) }}
		_ = drivertest.Check(t.Context(), h, func(r drivertest.Result) { // it tells of each
			if r.Err != nil {
				t.Errorf("%s, law %s: %s\n%v", r.ID, r.Law, r.Rule, r.Err)
			}
		})
		return
	}
	t.Run("three", func(t *testing.T) { conform(t, ownCluster(t, etcdtest.Default, 3)) })
	t.Run("3.4", func(t *testing.T) { conform(t, ownCluster(t, etcdtest.Old, 1)) })
	t.Run("three of 3.4", func(t *testing.T) { conform(t, ownCluster(t, etcdtest.Old, 3)) })
}

func conform(t *testing.T, c cluster) {
	t.Helper()
	drivertest.Run(t, drivertest.Harness{
		New:   func(ctx context.Context) (driver.Store, error) { return openURL(ctx, c.URL()) },
		Spawn: drivertest.Self(c.URL()),
	})
}

// A restart disturbs every case that runs beside it, so these have a server of
// their own.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	c := ownServer(t)
	h := drivertest.Harness{
		New:     func(ctx context.Context) (driver.Store, error) { return openURL(ctx, c.URL()) },
		Restart: c.Restart,
	}
	for _, one := range drivertest.Cases() {
		if one.Needs&drivertest.NeedRestart != 0 {
			t.Run(one.ID, func(t *testing.T) {
				if err := one.Run(t.Context(), h); err != nil {
					t.Errorf("law %s: %s\n%v", one.Law, one.Rule, err)
				}
			})
		}
	}
}

func openURL(ctx context.Context, text string) (driver.Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u, nil)
}
