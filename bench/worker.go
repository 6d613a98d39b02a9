package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	jain      = "Jain index over all callers"
	cpuEach   = "µs of the callers' processors a turn"
	workerEnv = "HOLDFAST_BENCH_WORKER"
	contest   = time.Second
	// each begins the kind of workers whose callers have a client each: others
	// share one. They warm up for a while, since many clients take time to dial.
	each   = "each:"
	warmUp = 2 * time.Second
)

// contend runs processes of callers that take turns on one lock for a second,
// and counts the turns of each caller.
func contend(kind, path string, processes, callers int) (float64, map[string]float64, error) {
	workers := make([]*process, 0, processes)
	for range processes {
		w, err := startWorker(kind, path, callers)
		if err != nil {
			return 0, nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers { // all are ready before any starts
		if _, err := w.out.ReadString('\n'); err != nil {
			return 0, nil, fmt.Errorf("worker: %w", err)
		}
	}
	for _, w := range workers {
		if err := w.in.Close(); err != nil {
			return 0, nil, err
		}
	}
	var turns []float64
	var spent time.Duration
	for _, w := range workers {
		var did work
		if err := json.NewDecoder(w.out).Decode(&did); err != nil {
			return 0, nil, fmt.Errorf("worker: %w", err)
		}
		if err := w.cmd.Wait(); err != nil {
			return 0, nil, fmt.Errorf("worker: %w", err)
		}
		turns, spent = append(turns, did.Turns...), spent+did.Spent
	}
	total := sum(turns)
	return total / contest.Seconds(), map[string]float64{jain: fairness(turns), cpuEach: float64(spent.Microseconds()) / total}, nil
}

// fairness is Jain's index: 1 if all have the same, 1/n if one has all (R.
// Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness", 1984).
func fairness(xs []float64) float64 {
	var squares float64
	for _, x := range xs {
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	total := sum(xs)
	return total * total / (float64(len(xs)) * squares)
}

func sum(xs []float64) (total float64) {
	for _, x := range xs {
		total += x
	}
	return total
}

// work is what a worker did: turns of each caller, and processor time.
type work struct {
	Turns []float64
	Spent time.Duration
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(kind, path string, callers int) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), exe, kind, path, strconv.Itoa(callers))
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// worker is the other side: it is true if this process is one.
func worker() bool {
	if os.Getenv(workerEnv) == "" {
		return false
	}
	if err := doWork(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "bench worker:", err)
		os.Exit(1)
	}
	return true
}

func doWork(kind, path, callers string) error {
	switch kind {
	case heldKind:
		return workHeld(path, callers)
	case awakeKind:
		return workAwake()
	}
	n, err := strconv.Atoi(callers)
	if err != nil {
		return err
	}
	pairs, done, err := pairsOf(kind, path, n)
	if err != nil {
		return err
	}
	defer done()
	hugePages()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until all are
		return err
	}
	did, errs := work{Turns: make([]float64, n), Spent: -cpuTime()}, make([]error, n)
	begin := time.Now()
	if strings.HasPrefix(kind, each) {
		begin = begin.Add(warmUp)
	}
	end := begin.Add(contest)
	var wg sync.WaitGroup
	if strings.HasPrefix(kind, each) {
		wg.Go(func() {
			<-time.After(warmUp / 2)
			hugePages()
		})
	}
	for i := range n {
		wg.Go(func() {
			for now := time.Now(); now.Before(end); now = time.Now() {
				if errs[i] = pairs[i](); errs[i] != nil {
					return
				}
				if now.After(begin) {
					did.Turns[i]++
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	did.Spent += cpuTime()
	return json.NewEncoder(os.Stdout).Encode(did)
}

// pairsOf is what each of n callers does.
func pairsOf(kind, path string, n int) (pairs []func() error, done func(), err error) {
	kind, own := strings.CutPrefix(kind, each)
	var ends []func()
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	for i := range n {
		if i > 0 && !own {
			pairs = append(pairs, pairs[0])
			continue
		}
		pair, end, err := pairOf(kind, path)
		if err != nil {
			done()
			return nil, nil, err
		}
		pairs, ends = append(pairs, pair), append(ends, end)
	}
	return pairs, done, nil
}

func pairOf(kind, path string) (pair func() error, done func(), err error) {
	for _, n := range []network{redis, etcd, zookeeper} {
		if name, ok := strings.CutPrefix(kind, n.store+":"); ok {
			one, end, openErr := n.pair(name, path)
			return func() error { return one("contended") }, end, openErr
		}
	}
	switch kind {
	case "raw":
		return rawPair(path), func() {}, nil
	case "gofrs":
		return gofrsPair(path), func() {}, nil
	}
	locks, err := holdfast.Open(context.Background(), "file://"+path, &holdfast.Options{NoLocalHandOver: kind == "holdfast-nolocal"})
	if err != nil {
		return nil, nil, err
	}
	return holdfastPair(locks), func() { _ = locks.Close() }, nil
}
