package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// network is a store on a server, and the ways to lock a name there that are
// compared.
type network struct {
	store string
	pairs int                             // that one caller does in a round
	start func() (addr string, err error) // the server, at the first call
	pair  func(contestant, addr string) (pair func(name string) error, done func(), err error)
}

// uncontended is one caller who locks and unlocks one name.
func (n network) uncontended(names ...string) comparison {
	return comparison{name: n.store + ", pair", unit: "µs a pair", contestants: n.contestants(names, func(pair func(string) error) (float64, error) {
		start := time.Now()
		for range n.pairs {
			if err := pair("pair"); err != nil {
				return 0, err
			}
		}
		return float64(time.Since(start).Microseconds()) / float64(n.pairs), nil
	})}
}

const manyCallers = 64

// many is so many callers of one process on a name each.
func (n network) many(names ...string) comparison {
	const callers = manyCallers
	c := comparison{name: n.store + ", 64 callers on 64 names", unit: "pairs a second"}
	c.contestants = n.contestants(names, func(pair func(string) error) (float64, error) {
		counts, errs := make([]float64, callers), make([]error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			name := "many/" + strconv.Itoa(i)
			wg.Go(func() {
				for end := time.Now().Add(contest); time.Now().Before(end); counts[i]++ {
					if errs[i] = pair(name); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		return sum(counts) / contest.Seconds(), errors.Join(errs...)
	})
	return c
}

// contestants time one way to lock each.
func (n network) contestants(names []string, run func(pair func(name string) error) (float64, error)) (all []contestant) {
	for _, name := range names {
		all = append(all, contestant{name, func() (float64, map[string]float64, error) {
			addr, err := n.start()
			if err != nil {
				return 0, nil, err
			}
			pair, done, err := n.pair(name, addr)
			if err != nil {
				return 0, nil, err
			}
			defer done()
			figure, err := run(pair)
			return figure, nil, err
		}})
	}
	return all
}

// contended is one name that many callers of several processes want.
func (n network) contended(processes, callers int, names ...string) comparison {
	c := comparison{name: fmt.Sprintf("%s, one name, %d processes x %d callers", n.store, processes, callers), unit: "hand-overs a second"}
	for _, name := range names {
		c.contestants = append(c.contestants, contestant{name, func() (float64, map[string]float64, error) {
			addr, err := n.start()
			if err != nil {
				return 0, nil, err
			}
			return contend(n.store+":"+name, addr, processes, callers)
		}})
	}
	c.targets = []target{{contestant: oursNoHandOff, more: jain, atLeast: 0.99}}
	return c
}

const oursCancellable = "holdfast, by a ctx that can be cancelled"

// holdfastAt is this library at a URL, with or without local hand-over.
func holdfastAt(contestant, url string) (pair func(name string) error, done func(), err error) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if contestant == oursCancellable {
		ctx, cancel = context.WithCancel(ctx)
	}
	locks, err := holdfast.Open(ctx, url, &holdfast.Options{NoLocalHandOver: contestant == oursNoHandOff})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	done = func() {
		closeClient(locks)
		cancel()
	}
	return func(name string) error {
		lease, err := locks.Acquire(ctx, name, nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}, done, nil
}
