package redislock

import (
	"context"
	"net/url"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "--appendonly", "yes", "--appendfsync", "always")
	drivertest.Run(t, drivertest.Harness{
		New:   func(ctx context.Context) (driver.Store, error) { return openURL(ctx, s.url()) },
		Spawn: drivertest.Self(s.url()),
	})
}

// A restart disturbs every case that runs beside it, so these have a server of
// their own.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "--appendonly", "yes", "--appendfsync", "always")
	h := drivertest.Harness{
		New:     func(ctx context.Context) (driver.Store, error) { return openURL(ctx, s.url()) },
		Restart: s.restart,
	}
	for _, c := range drivertest.Cases() {
		if c.Needs&drivertest.NeedRestart != 0 {
			t.Run(c.ID, func(t *testing.T) {
				if err := c.Run(t.Context(), h); err != nil {
					t.Errorf("law %s: %s\n%v", c.Law, c.Rule, err)
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
