package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// Run something under a lock: acquire, renew, stop if the lock is lost, release.
func Example() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(), nil) // or holdfast.Open(ctx, "file:///var/lock/myapp", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Do(ctx, "draw/2026-11", nil, func(ctx context.Context, lease *holdfast.Lease) error {
		fmt.Println("drawing under", lease.Name(), "with a token:", lease.Token() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// drawing under draw/2026-11 with a token: true
	// <nil>
}

// Skip the work if another does it already.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	server := memlock.NewServer()
	here, _ := holdfast.New(server.Store(), nil)
	there, _ := holdfast.New(server.Store(), &holdfast.Options{Label: "host-2"}) // another process
	defer here.Close()
	defer there.Close()

	if _, err := there.TryAcquire(ctx, "report", nil); err != nil {
		log.Fatal(err)
	}
	_, err := here.TryAcquire(ctx, "report", nil)
	if e, ok := errors.AsType[*holdfast.Error](err); ok && errors.Is(err, holdfast.ErrHeld) {
		fmt.Println("skipped: held by", e.Holder.Label)
	}
	// Output: skipped: held by host-2
}

// Wait for at most so long, and tell a busy lock from a store that is down.
func ExampleAcquireOptions_wait() {
	ctx := context.Background()
	server := memlock.NewServer()
	here, _ := holdfast.New(server.Store(), nil)
	there, _ := holdfast.New(server.Store(), nil)
	defer here.Close()
	defer there.Close()
	if _, err := there.Acquire(ctx, "stock/7", nil); err != nil {
		log.Fatal(err)
	}

	_, err := here.Acquire(ctx, "stock/7", &holdfast.AcquireOptions{Wait: 20 * time.Millisecond})
	switch {
	case errors.Is(err, holdfast.ErrTimeout) && errors.Is(err, holdfast.ErrHeld):
		fmt.Println("busy")
	case errors.Is(err, holdfast.ErrUnavailable):
		fmt.Println("the store is down")
	}
	// Output: busy
}

// Five at a time.
func ExampleClient_Semaphore() {
	ctx := context.Background()
	locks, _ := holdfast.New(memlock.New(), nil)
	defer locks.Close()
	downloads := locks.Semaphore("downloads", 5)

	var mu sync.Mutex
	inside, most := 0, 0
	count := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		inside += d
		most = max(most, inside)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			permit, err := downloads.Acquire(ctx, 1)
			if err != nil {
				return
			}
			count(1)
			time.Sleep(time.Millisecond)
			count(-1)
			_ = permit.Release(ctx)
		})
	}
	all.Wait()
	fmt.Println("never more than five:", most <= 5)
	// Output: never more than five: true
}

// Many readers or one writer. A waiting writer stops new readers.
func ExampleClient_RWMutex() {
	ctx := context.Background()
	locks, _ := holdfast.New(memlock.New(), nil)
	defer locks.Close()
	config := locks.RWMutex("config")

	one, _ := config.RLock(ctx)
	two, _ := config.RLock(ctx)
	_, err := config.TryLock(ctx)
	fmt.Println("two readers; a writer:", errors.Is(err, holdfast.ErrHeld))
	_ = one.Release(ctx)
	_ = two.Release(ctx)
	writer, err := config.Lock(ctx)
	fmt.Println("then:", writer.Mode(), err)
	// Output:
	// two readers; a writer: true
	// then: exclusive <nil>
}

// A function that takes a lock may call another that takes it too, if it passes
// the lease's context and both say Reentrant.
func ExampleAcquireOptions_reentrant() {
	locks, _ := holdfast.New(memlock.New(), nil)
	defer locks.Close()
	reentrant := &holdfast.AcquireOptions{Reentrant: true}

	err := locks.Do(context.Background(), "account/7", reentrant, func(ctx context.Context, outer *holdfast.Lease) error {
		return locks.Do(ctx, "account/7", reentrant, func(_ context.Context, inner *holdfast.Lease) error {
			fmt.Println("one hold:", inner.Token() == outer.Token())
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// one hold: true
	// <nil>
}

// A resource that checks the fencing token refuses a writer whose lease was
// lost without his knowing.
func ExampleLease_Token() {
	ctx := context.Background()
	locks, _ := holdfast.New(memlock.New(), nil)
	defer locks.Close()

	var last uint64 // kept with the resource, compared in the same step as the write
	write := func(token uint64) error {
		if token < last {
			return errors.New("stale token")
		}
		last = token
		return nil
	}
	old, _ := locks.Acquire(ctx, "file", nil)
	_ = old.Release(ctx)
	present, _ := locks.Acquire(ctx, "file", nil)
	fmt.Println(write(present.Token()), "/", write(old.Token()))
	// Output: <nil> / stale token
}

// Hand a lock from one process to another: only whoever has the handle holds
// it.
func ExampleLease_Handle() {
	ctx := context.Background()
	server := memlock.NewServer()
	here, _ := holdfast.New(server.Store(), nil)
	there, _ := holdfast.New(server.Store(), nil)
	defer here.Close()
	defer there.Close()

	lease, _ := here.Acquire(ctx, "upload/9", nil)
	handle, err := lease.Handle()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("here:", context.Cause(lease.Context()))

	adopted, err := there.Adopt(ctx, handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("there:", adopted.Valid(), adopted.Token() == lease.Token())
	// Output:
	// here: lease released
	// there: true true
}

// See who holds and who waits, and free a lock whose holder does not answer.
func ExampleClient_Break() {
	ctx := context.Background()
	server := memlock.NewServer()
	worker, _ := holdfast.New(server.Store(), &holdfast.Options{Label: "worker-3"})
	operator, _ := holdfast.New(server.Store(), nil)
	defer worker.Close()
	defer operator.Close()
	lease, _ := worker.Acquire(ctx, "import", nil)

	record, _ := operator.Inspect(ctx, "import")
	holder := record.Holders[0]
	fmt.Println("held by", holder.Label)
	err := operator.Break(ctx, "import", holdfast.BreakOptions{Token: holder.Token, Reason: "stuck since noon", By: "ops"})
	fmt.Println(err)

	<-lease.Context().Done() // the worker learns it
	fmt.Println(errors.Is(context.Cause(lease.Context()), holdfast.ErrBroken))
	// Output:
	// held by worker-3
	// <nil>
	// true
}
