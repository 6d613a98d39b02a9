package integration_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/history"
)

// workerEnv tells the test binary to be a worker: its value is the
// workerConfig.
const workerEnv = "HOLDFAST_INTEGRATION_WORKER"

// workerConfig is what a worker process is to do, until its stdin ends.
type workerConfig struct {
	URL  string
	Log  string // of its events
	Proc string
	Seed uint64
	Dir  string // of the counters
	// Fenced counters refuse an older token. Without it the lock alone must keep
	// two from writing.
	Fenced bool
	Hasty  bool // of a candidate: see hasty
	Rough  bool // of a candidate: the store may be away when it ends
}

const (
	workerThreads = 3
	workerTTL     = time.Second
)

var (
	workerLocks = []string{"lock-0", "lock-1", "lock-2"}
	workerNames = append([]string{"permits-0"}, workerLocks...)
)

func workerMain(config string) int {
	var c workerConfig
	err := json.Unmarshal([]byte(config), &c)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func (c *workerConfig) run() error {
	rec, err := history.Create(c.Log, c.Proc)
	if err != nil {
		return err
	}
	client, err := c.open()
	if err != nil {
		return err
	}
	u := &user{rec: rec, client: client, deadlines: true}
	stop, cancel := context.WithCancel(context.Background())
	errs := make(chan error, workerThreads)
	var wg sync.WaitGroup
	for i := range workerThreads {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(c.Seed, uint64(i))) //nolint:gosec // not negative
			for stop.Err() == nil {
				if err := c.round(stop, u, r); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	wg.Wait()
	close(errs)
	err = u.closeClient()
	if errors.Is(err, holdfast.ErrIndeterminate) { // an attempt that was cancelled half-way
		err = nil
	}
	err = errors.Join(err, rec.Close())
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// open opens the store, again if its server is down for a moment.
func (c *workerConfig) open() (client *holdfast.Client, err error) {
	for range 300 {
		client, err = holdfast.Open(context.Background(), c.URL, &holdfast.Options{TTL: workerTTL, Logger: silent})
		if err == nil || !errors.Is(err, holdfast.ErrUnavailable) {
			break
		}
		pause(nil, 100*time.Millisecond)
	}
	return client, err
}

// round is one acquire, with what a program does under it.
func (c *workerConfig) round(ctx context.Context, u *user, r *rand.Rand) error {
	pause(ctx.Done(), time.Duration(r.Int64N(int64(20*time.Millisecond))))
	req := request{name: workerNames[r.IntN(len(workerNames))], try: r.IntN(5) == 0}
	switch {
	case req.name == "permits-0":
		req.opts.Permits, req.opts.Limit = 1+r.IntN(permitLimit), permitLimit
	case r.IntN(3) == 0:
		req.opts.Mode = holdfast.Shared
	}
	limit := patience
	switch r.IntN(4) {
	case 0:
		limit = 1 + time.Duration(r.Int64N(int64(20*time.Millisecond)))
	case 1:
		req.opts.Wait = 1 + time.Duration(r.Int64N(int64(20*time.Millisecond)))
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g, err := u.acquire(wait, req)
	switch {
	case err == nil:
	case wait.Err() != nil, isAny(err, holdfast.ErrHeld, holdfast.ErrTimeout, holdfast.ErrUnavailable, holdfast.ErrIndeterminate):
		return nil
	default:
		return err
	}
	if req.opts.Permits == 0 && req.opts.Mode == 0 {
		err = c.count(g, r)
	} else {
		pause(g.lease.Context().Done(), time.Duration(r.Int64N(int64(5*time.Millisecond))))
		g.look()
	}
	if rerr := g.release(ctx); rerr != nil && !isAny(rerr, holdfast.ErrLost, holdfast.ErrUnavailable, holdfast.ErrIndeterminate) {
		err = errors.Join(err, rerr)
	}
	return err
}

func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// count raises the counter of the name by one, slowly.
func (c *workerConfig) count(g *grip, r *rand.Rand) error {
	file, err := os.OpenFile(filepath.Join(c.Dir, g.lease.Name()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // what is written is written
	was, _, err := readCounter(file)
	if err != nil {
		return err
	}
	pause(g.lease.Context().Done(), time.Duration(r.Int64N(int64(5*time.Millisecond))))
	if !g.look() {
		return nil
	}
	written, err := c.write(file, was+1, g.lease.Token())
	if err != nil || !written {
		return err
	}
	g.user.rec.Add(history.Event{Kind: history.Effect, Client: g.user.number, Op: g.op, Was: was, Now: was + 1})
	return nil
}

// write sets the counter.
func (c *workerConfig) write(file *os.File, value, token uint64) (bool, error) {
	return c.update(file, token, func(uint64) uint64 { return value })
}

// update changes the counter. A fenced one compares the token in the same atomic
// step.
func (c *workerConfig) update(file *os.File, token uint64, change func(uint64) uint64) (bool, error) {
	if c.Fenced {
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return false, err
		}
		defer func() { _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }() // of an open file
	}
	value, last, err := readCounter(file)
	if err != nil || c.Fenced && last > token {
		return false, err
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], change(value))
	binary.BigEndian.PutUint64(b[8:], token)
	_, err = file.WriteAt(b[:], 0)
	return err == nil, err
}

func readCounter(file *os.File) (value, token uint64, err error) {
	var b [16]byte
	if _, err := file.ReadAt(b[:], 0); err != nil {
		return 0, 0, err
	}
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), nil
}
