package holdfast_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// A service that runs on several hosts and is active on one: each runs this.
func ExampleElection_Run() {
	locks, err := holdfast.New(memlock.New(), nil) // or holdfast.Open(ctx, "redis://…", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond) // or signal.NotifyContext
	defer stop()

	scheduler := locks.Election("scheduler").With(holdfast.ElectionOptions{Value: "10.0.0.1:8080"})
	err = scheduler.Run(ctx, func(ctx context.Context, term *holdfast.Term) error {
		fmt.Println("leading, with a token:", term.Token() > 0)
		tick := time.NewTicker(time.Hour)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				// Schedule, and send term.Token() along with what is written.
			case <-ctx.Done():
				fmt.Println("stopping: nobody else leads yet")
				return nil
			}
		}
	})
	fmt.Println(ctx.Err() != nil, err != nil)
	// Output:
	// leading, with a token: true
	// stopping: nobody else leads yet
	// true true
}

// Follow whoever leads.
func ExampleElection_Observe() {
	ctx := context.Background()
	server := memlock.NewServer()
	here, _ := holdfast.New(server.Store(), nil)
	there, _ := holdfast.New(server.Store(), nil) // another process
	defer here.Close()
	defer there.Close()

	term, err := there.Election("scheduler").Campaign(ctx, "10.0.0.2:8080")
	if err != nil {
		log.Fatal(err)
	}
	for leader, err := range here.Election("scheduler").Observe(ctx) {
		switch {
		case err != nil:
			fmt.Println("not known:", err)
			continue
		case leader.None():
			fmt.Println("nobody leads")
			return
		}
		fmt.Println("connect to", leader.Value)
		if leader.Value == "10.0.0.2:8080" {
			err = term.Proclaim(ctx, "10.0.0.2:9090")
		} else {
			err = term.Resign(ctx)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// connect to 10.0.0.2:8080
	// connect to 10.0.0.2:9090
	// nobody leads
}

// A program with a loop of its own: stop the work before the term is resigned, and
// when it is lost.
func ExampleElection_Campaign() {
	ctx := context.Background()
	locks, _ := holdfast.New(memlock.New(), nil)
	defer locks.Close()

	term, err := locks.Election("compaction").Campaign(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	for chunk := range 3 {
		if !term.Valid() { // right before each side effect
			break
		}
		fmt.Println("compact chunk", chunk)
	}
	fmt.Println(term.Resign(ctx))
	// Output:
	// compact chunk 0
	// compact chunk 1
	// compact chunk 2
	// <nil>
}
