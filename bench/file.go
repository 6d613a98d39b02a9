package main

import (
	"context"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/filelock" // the store under test
)

const (
	raw           = "raw flock(2): open, lock, unlock, close"
	gofrs         = "gofrs/flock"
	ours          = "holdfast"
	oursNoHandOff = "holdfast, every hand-over through the store"
)

// pairs is how many pairs one round of the uncontended job does.
const pairs = 20000

// filePair is one caller who locks and unlocks one name.
func filePair(dir string) comparison {
	return comparison{
		name: "file, pair", unit: "ns a pair",
		contestants: []contestant{
			{raw, func() (float64, map[string]float64, error) { return timePairs(rawPair(filepath.Join(dir, "raw"))) }},
			{gofrs, func() (float64, map[string]float64, error) { return timePairs(gofrsPair(filepath.Join(dir, "gofrs"))) }},
			{ours, func() (float64, map[string]float64, error) {
				locks, err := holdfast.Open(context.Background(), "file://"+filepath.Join(dir, "holdfast"), nil)
				if err != nil {
					return 0, nil, err
				}
				defer closeClient(locks)
				return timePairs(holdfastPair(locks))
			}},
		},
		targets: []target{{contestant: ours, over: gofrs, atMost: 1.2}},
	}
}

func timePairs(pair func() error) (float64, map[string]float64, error) {
	start := time.Now()
	for range pairs {
		if err := pair(); err != nil {
			return 0, nil, err
		}
	}
	return float64(time.Since(start).Nanoseconds()) / pairs, nil, nil
}

func rawPair(path string) func() error {
	return func() error {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		if err := syscall.Flock(fd, syscall.LOCK_EX); err != nil {
			return err
		}
		if err := syscall.Flock(fd, syscall.LOCK_UN); err != nil {
			return err
		}
		return syscall.Close(fd)
	}
}

func gofrsPair(path string) func() error {
	return func() error {
		lock := flock.New(path)
		if err := lock.Lock(); err != nil {
			return err
		}
		return lock.Unlock()
	}
}

func holdfastPair(locks *holdfast.Client) func() error {
	ctx := context.Background()
	return func() error {
		lease, err := locks.Acquire(ctx, "pair", nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

// fileContended is one name that 4 processes of 4 callers each want.
func fileContended(dir string) comparison {
	one := func(kind string) func() (float64, map[string]float64, error) {
		return func() (float64, map[string]float64, error) { return contend(kind, filepath.Join(dir, kind), 4, 4) }
	}
	return comparison{
		name: "file, one name, 4 processes x 4 callers", unit: "hand-overs a second",
		contestants: []contestant{
			{raw, one("raw")}, {gofrs, one("gofrs")}, {ours, one("holdfast")}, {oursNoHandOff, one("holdfast-nolocal")},
		},
		targets: []target{
			{contestant: ours, over: gofrs, atLeast: 1},
			{contestant: ours, more: jain, atLeast: 0.9},
		},
	}
}

// command is the start of a program under a lock.
func command(dir string) comparison {
	binary := filepath.Join(dir, "holdfast.bin")
	lock := filepath.Join(dir, "command.lock")
	return comparison{
		name: "command (all stores linked in), true under a lock", unit: "ms",
		contestants: []contestant{
			{"flock(1) FILE true", startTimes("flock", lock, "true")},
			{"holdfast run NAME -- true", func() (float64, map[string]float64, error) {
				if err := build(binary); err != nil {
					return 0, nil, err
				}
				return startTimes(binary, "run", "--store", "file://"+filepath.Join(dir, "command"), "bench", "--", "true")()
			}},
		},
		targets: []target{{contestant: "holdfast run NAME -- true", more: "ms over flock(1)", atMost: 25}},
	}
}
