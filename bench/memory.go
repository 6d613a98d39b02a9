package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// comparisons is all there is to measure; dir is for files.
func comparisons(dir string) []comparison {
	return slices.Concat([]comparison{
		filePair(dir), fileContended(dir), localHandOver(), valid(), held("10,000 leases held for 10 s, TTL 30 s", "memory://"), command(dir),
	}, redisComparisons(), etcdComparisons(), zookeeperComparisons())
}

// localHandOver is one name that 256 callers of one process want.
func localHandOver() comparison {
	return comparison{
		name: "one process, one name, 256 callers", unit: "hand-overs a second",
		contestants: []contestant{{ours, func() (float64, map[string]float64, error) {
			locks, err := holdfast.New(memlock.New(), nil)
			if err != nil {
				return 0, nil, err
			}
			defer closeClient(locks)
			return handOvers(locks, 256)
		}}},
		targets: []target{{contestant: ours, atLeast: 100_000}},
	}
}

func handOvers(locks *holdfast.Client, callers int) (float64, map[string]float64, error) {
	pair := holdfastPair(locks)
	counts, errs := make([]float64, callers), make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for end := time.Now().Add(contest); time.Now().Before(end); counts[i]++ {
				if errs[i] = pair(); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return sum(counts) / contest.Seconds(), map[string]float64{jain: fairness(counts)}, errors.Join(errs...)
}

// valid is the look at a lease right before a side effect.
func valid() comparison {
	const looks = 1_000_000
	time1 := func(look func() bool) (float64, map[string]float64, error) {
		start := time.Now()
		for range looks {
			if !look() {
				return 0, nil, errors.New("lease lost")
			}
		}
		return float64(time.Since(start).Nanoseconds()) / looks, nil, nil
	}
	return comparison{
		name: "Lease.Valid", unit: "ns",
		contestants: []contestant{
			{"its clock (CLOCK_BOOTTIME)", func() (float64, map[string]float64, error) {
				var now syscall.Timespec
				return time1(func() bool {
					_, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 7, uintptr(unsafe.Pointer(&now)), 0)
					return failed == 0
				})
			}},
			{ours, func() (float64, map[string]float64, error) {
				locks, err := holdfast.New(memlock.New(), nil)
				if err != nil {
					return 0, nil, err
				}
				defer closeClient(locks)
				lease, err := locks.Acquire(context.Background(), "valid", nil)
				if err != nil {
					return 0, nil, err
				}
				return time1(lease.Valid)
			}},
		},
		targets: []target{{contestant: ours, over: "its clock (CLOCK_BOOTTIME)", atMost: 1.6}},
	}
}

func closeClient(locks *holdfast.Client) {
	if err := locks.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}
