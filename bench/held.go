package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	heldLeases = 10_000
	heldWatch  = 10 * time.Second // a renewal of each
	heldKind   = "held"
	bytesEach  = "bytes a lease beyond its name"
)

// held is 10,000 leases that renew themselves, in a process that does nothing
// else: in one that has done much else before, the runtime's own tidying up costs
// more than the renewals. What a lease weighs on the memory store is the store's
// own record too.
func held(name, url string, more ...target) comparison {
	return comparison{
		name: name, unit: "% of a core",
		contestants: []contestant{{ours, func() (float64, map[string]float64, error) { return heldBy(url) }}},
		targets:     append(more, target{contestant: ours, atMost: 1}),
	}
}

func heldBy(url string) (float64, map[string]float64, error) {
	w, err := startWorker(heldKind, url, heldLeases)
	if err != nil {
		return 0, nil, err
	}
	var figures [2]float64
	if err := json.NewDecoder(w.out).Decode(&figures); err != nil {
		return 0, nil, fmt.Errorf("worker: %w", err)
	}
	return figures[0], map[string]float64{bytesEach: figures[1]}, w.cmd.Wait()
}

// workHeld is the process: it prints the two figures.
func workHeld(url, leases string) error {
	n, err := strconv.Atoi(leases)
	if err != nil {
		return err
	}
	locks, err := holdfast.Open(context.Background(), url, nil)
	if err != nil {
		return err
	}
	defer closeClient(locks)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("held/%d", i)
	}
	empty := heapSize()
	for _, name := range names {
		if _, err := locks.Acquire(context.Background(), name, nil); err != nil {
			return err
		}
	}
	each := float64(heapSize()-empty) / float64(n)
	before := cpuTime()
	<-time.After(heldWatch)
	return json.NewEncoder(os.Stdout).Encode([2]float64{float64(cpuTime()-before) / float64(heldWatch) * 100, each})
}

func heapSize() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
