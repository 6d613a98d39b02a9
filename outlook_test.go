package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// slowLooks is a store that answers who leads when a test lets it.
type slowLooks struct {
	*spy
	look chan error
}

func (s *slowLooks) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	select {
	case err := <-s.look:
		if err != nil {
			return nil, err
		}
		return s.spy.Leader(ctx, n)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An error that no further look can mend ends all loops: also those that came while
// the look was on its way, and wait for a later one.
func TestLastLookEndsAllObservers(t *testing.T) {
	for what, end := range map[string]func(*slowLooks, *holdfast.Client) error{
		"closed": func(_ *slowLooks, c *holdfast.Client) error {
			_ = c.Close()
			return holdfast.ErrClosed
		},
		"denied": func(s *slowLooks, _ *holdfast.Client) error {
			s.look <- &driver.Failure{Kind: driver.Denied, Err: context.Canceled}
			return holdfast.ErrDenied
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &slowLooks{newSpy(t, memlock.NewServer()), make(chan error)}
			c := open(t, s, nil)
			ended := make(chan error, 2)
			for range 2 {
				go func() {
					var last error
					for _, last = range c.Election("x").Observe(t.Context()) { //nolint:revive // the last counts
					}
					ended <- last
				}()
				synctest.Wait() // its look is on its way
			}
			kind := end(s, c)
			synctest.Wait()
			for range 2 {
				select {
				case err := <-ended:
					want(t, err, kind)
				default:
					t.Errorf("%s: a loop goes on", what)
				}
			}
		})
	}
}
