package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	heldLeases = 10_000
	heldSettle = 3 * time.Second  // a store may have to learn tokens first
	heldWatch  = 10 * time.Second // a renewal of each
	heldKind   = "held"
	bytesEach  = "bytes a lease beyond its name"
	inPages    = "% of a core in ordinary pages"
	awakeKind  = "awake"
)

// held is 10,000 leases that renew themselves, in a process that does nothing
// else: in one that has done much else before, the runtime's own tidying up costs
// more than the renewals. Its memory is in huge pages, or touching it would cost
// some machines more than the work. Other processes of the least priority keep the cores awake: a
// virtual machine that rests loses its caches, and that is charged to whoever wakes it. What
// a lease weighs on the memory store is the store's own record too.
func held(name, url string) comparison {
	return comparison{
		name: name, unit: "% of a core",
		contestants: []contestant{{ours, func() (float64, map[string]float64, error) { return heldBy(url, nil) }}},
		targets:     []target{{contestant: ours, atMost: 1}},
	}
}

const commandsASecond = "commands a second"

// redisHeld is the same on a server, whose commands count.
func redisHeld() comparison {
	return comparison{
		name: "redis, 10,000 leases held for 10 s, TTL 30 s", unit: "% of a core",
		contestants: []contestant{{ours, func() (float64, map[string]float64, error) {
			addr, err := startRedis()
			if err != nil {
				return 0, nil, err
			}
			return heldBy("redis://"+addr, func() (float64, error) { return redisCommands(addr) })
		}}},
		targets: []target{
			{contestant: ours, atMost: 1},
			{contestant: ours, more: commandsASecond, atMost: 50},
			{contestant: ours, more: bytesEach, atMost: 1024},
		},
	}
}

func heldBy(url string, commands func() (float64, error)) (float64, map[string]float64, error) {
	w, err := startWorker(heldKind, url, heldLeases)
	if err != nil {
		return 0, nil, err
	}
	if commands == nil {
		commands = func() (float64, error) { return 0, nil }
	}
	var counts [2]float64 // of commands, before and after
	for i := range counts {
		if _, err = w.out.ReadString('\n'); err != nil {
			return 0, nil, fmt.Errorf("worker: %w", err)
		}
		if counts[i], err = commands(); err != nil {
			return 0, nil, err
		}
	}
	var figures [3]float64
	err = errors.Join(json.NewDecoder(w.out).Decode(&figures), w.in.Close(), w.cmd.Wait())
	more := map[string]float64{bytesEach: figures[1], inPages: figures[2]}
	if counts[1] > 0 {
		more[commandsASecond] = (counts[1] - counts[0]) / heldWatch.Seconds()
	}
	return figures[0], more, err
}

// workHeld is the process: it prints the three figures.
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
		if _, err = locks.Acquire(context.Background(), name, nil); err != nil {
			return err
		}
	}
	<-time.After(heldSettle)
	rest, err := keepAwake()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	plain := share()
	fmt.Println("counted")
	hugePages()
	spent := share()
	if err := rest(); err != nil {
		return err
	}
	each := float64(heapSize()-empty) / float64(n) // not before: what a collection leaves is tidied up for long
	return json.NewEncoder(os.Stdout).Encode([3]float64{spent, each, plain})
}

// keepAwake gives every core something to do, until rest is called.
func keepAwake() (rest func() error, err error) {
	var all []*process
	for range runtime.NumCPU() {
		w, err := startWorker(awakeKind, "", 0)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return func() (err error) {
		for _, w := range all {
			err = errors.Join(err, w.in.Close(), w.cmd.Wait())
		}
		return err
	}, nil
}

// workAwake is such a process: it leaves the core to whoever else wants it.
func workAwake() error {
	runtime.LockOSThread()
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for !over.Load() { //nolint:revive // to be busy is the point
	}
	return nil
}

// share is how much of a core the process takes for a while, in percent.
func share() float64 {
	before := cpuTime()
	<-time.After(heldWatch)
	return float64(cpuTime()-before) / float64(heldWatch) * 100
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
