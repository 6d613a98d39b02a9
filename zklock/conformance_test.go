package zklock

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/drivertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	suite(t, ownServer(t).url())
}

func suite(t *testing.T, at string) {
	t.Helper()
	c := openAt(t, at, testTTL)
	for range 500 { // a server that has just begun is several times slower
		c.free(t, c.hold(t, "warm"))
	}
	drivertest.Run(t, drivertest.Harness{New: opener(at), Spawn: drivertest.Self(at), TTL: time.Second})
}

// A restart disturbs every case that runs beside it, so these have a server of
// their own.
func TestConformanceRestart(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	h := drivertest.Harness{New: opener(s.url()), Restart: s.restart, TTL: time.Second}
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
