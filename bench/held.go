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
	idleShare  = "% of a core without a lease"
)

// held is 10,000 leases that renew themselves, in a process that does nothing
// else: in one that has done much else before, the runtime's own tidying up costs
// more than the renewals. What the same process costs without a lease is taken
// off: on a virtual machine to wake up is dear. What a lease weighs on the memory
// store is the store's own record too.
func held(name, url string) comparison {
	return comparison{
		name: name, unit: "% of a core more than without",
		contestants: []contestant{{ours, func() (float64, map[string]float64, error) { return heldBy(url, nil) }}},
		targets:     []target{{contestant: ours, atMost: 1}},
	}
}

const commandsASecond = "commands a second"

// redisHeld is the same on a server, whose commands count.
func redisHeld(dir string) comparison {
	return comparison{
		name: "redis, 10,000 leases held for 10 s, TTL 30 s", unit: "% of a core more than without",
		contestants: []contestant{{ours, func() (float64, map[string]float64, error) {
			addr, err := startRedis(dir)
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
	if _, err := w.out.ReadString('\n'); err != nil {
		return 0, nil, fmt.Errorf("worker: %w", err)
	}
	before, err1 := commands()
	var figures [3]float64
	err2 := json.NewDecoder(w.out).Decode(&figures)
	after, err3 := commands()
	more := map[string]float64{bytesEach: figures[1], idleShare: figures[2]}
	if after > 0 {
		more[commandsASecond] = (after - before) / heldWatch.Seconds()
	}
	return figures[0], more, errors.Join(err1, err2, err3, w.in.Close(), w.cmd.Wait())
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
	idle := share()
	empty := heapSize()
	for _, name := range names {
		if _, err = locks.Acquire(context.Background(), name, nil); err != nil {
			return err
		}
	}
	<-time.After(heldSettle)
	fmt.Println("ready")
	spent := share() - idle
	each := float64(heapSize()-empty) / float64(n) // not before: what a collection leaves is tidied up for long
	err = json.NewEncoder(os.Stdout).Encode([3]float64{spent, each, idle})
	if err == nil {
		_, err = io.Copy(io.Discard, os.Stdin) // until the commands are counted
	}
	return err
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
