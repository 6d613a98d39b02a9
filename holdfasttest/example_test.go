package holdfasttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// draw is the code under test: it works under a lock and stops when it is lost.
func draw(ctx context.Context, locks *holdfast.Client) error {
	return locks.Do(ctx, "draw", nil, func(ctx context.Context, _ *holdfast.Lease) error {
		select {
		case <-time.After(time.Hour): // a long draw
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// A user's test: the draw must stop when the lock is lost, and may be done by
// another then.
func TestDrawStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := holdfasttest.New(t)
		done := make(chan error)
		go func() { done <- draw(t.Context(), fake.Client()) }()
		fake.WaitHeld("draw")

		if _, err := fake.NewClient(nil).TryAcquire(t.Context(), "draw", nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("the draw is not locked: %v", err)
		}
		fake.Lose("draw")
		if err := <-done; !errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("got %v, want ErrLost", err)
		}
	})
}

func TestDownStoreLosesTheLeaseByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := holdfasttest.New(t)
		lease, err := fake.Client().Acquire(t.Context(), "draw", &holdfast.AcquireOptions{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // it renews itself
		fake.Down(true)
		deadline, _ := lease.Deadline()
		<-lease.Context().Done()
		if late := time.Since(deadline); late > 0 {
			t.Errorf("told %v after the deadline", late)
		}
		if _, err := fake.Client().TryAcquire(t.Context(), "draw", nil); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

func TestSlowStoreLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := holdfasttest.New(t)
		fake.Delay(3 * time.Second) // over the request timeout of 2 s
		if _, err := fake.Client().TryAcquire(t.Context(), "draw", nil); !errors.Is(err, holdfast.ErrIndeterminate) {
			t.Fatalf("got %v, want ErrIndeterminate", err)
		}
		fake.Delay(0)
		time.Sleep(5 * time.Second) // what may have been acquired is given back
		if _, err := fake.NewClient(nil).TryAcquire(t.Context(), "draw", nil); err != nil {
			t.Error(err)
		}
	})
}

func ExampleFake_Lose() {
	t := &testing.T{} // in a test, its own
	fake := holdfasttest.New(t)
	lease, err := fake.Client().Acquire(context.Background(), "draw", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fake.Lose("draw")
	<-lease.Context().Done()
	fmt.Println(lease.Valid(), errors.Is(context.Cause(lease.Context()), holdfast.ErrLost))
	// Output: false true
}
