package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// starts is how many program starts one round times.
const starts = 20

var flockTime float64 // of the round, for the difference

// startTimes is the mean time of a program from start to end.
func startTimes(name string, args ...string) func() (float64, map[string]float64, error) {
	return func() (float64, map[string]float64, error) {
		begin := time.Now()
		for range starts {
			if out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput(); err != nil {
				return 0, nil, fmt.Errorf("%w: %s", err, out)
			}
		}
		ms := time.Since(begin).Seconds() * 1000 / starts
		if name == "flock" {
			flockTime = ms
			return ms, nil, nil
		}
		return ms, map[string]float64{"ms over flock(1)": ms - flockTime}, nil
	}
}

var buildOnce sync.Once

// build makes the command, once.
func build(binary string) (err error) {
	buildOnce.Do(func() {
		cmd := exec.CommandContext(context.Background(), "go", "build", "-o", binary, ".")
		cmd.Dir = "../cmd/holdfast"
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	})
	return err
}
