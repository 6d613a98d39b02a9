package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// How long the processes run, and the least that they must get done: far below
// what an idle machine does, and enough to prove something.
const (
	processes       = 4
	processTime     = 10 * time.Second
	processTimeFull = 60 * time.Second
	grantFloor      = 5 // a second
)

// TestProcesses lets real processes fight for a few names, while they are
// killed and stopped at any moment, and checks what all of them saw.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, s := range stores {
		if s.processes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				fightOver(t, s.start(t), s.bound, func() {})
			})
		}
	}
}

// TestProcessesServerDies is the same while the server is killed, stopped and
// started again too: one that loses nothing then lets nobody in twice.
func TestProcessesServerDies(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name  string
		bound driver.Bound
		start func() (url string, signal func(syscall.Signal), restart func() error)
	}{
		{"redis", driver.ByLease, func() (string, func(syscall.Signal), func() error) {
			server := startRedis(t)
			return server.URL(), server.Signal, server.Restart
		}},
		{"etcd", driver.ByLease, func() (string, func(syscall.Signal), func() error) {
			c := startEtcd(t)
			return c.URL(), func(sig syscall.Signal) { _ = c.Nodes[0].Signal(sig) }, func() error { return c.Restart(t.Context()) }
		}},
		{"zookeeper", driver.ByConnection, func() (string, func(syscall.Signal), func() error) {
			server := startZooKeeper(t)
			return server.URL(), func(sig syscall.Signal) { _ = server.Signal(sig) }, server.Restart
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			url, signal, restart := s.start()
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			fightOver(t, url, s.bound, func() {
				if random.IntN(10) > 0 {
					return
				}
				signal(syscall.SIGSTOP)
				pause(nil, rand.N(300*time.Millisecond))
				signal(syscall.SIGCONT)
				if err := restart(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestProcessesElsewhere is the same on a cluster and behind Sentinel, with
// HOLDFAST_FULL alone. Nothing fails over meanwhile: what that may forget is no
// fault of ours.
func TestProcessesElsewhere(t *testing.T) {
	if !full() {
		return
	}
	t.Parallel()
	t.Run("redis-cluster", func(t *testing.T) {
		t.Parallel()
		c, err := redistest.StartCluster(redistest.Default, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Remove)
		fightOver(t, c.URL(), driver.ByLease, func() {})
	})
	t.Run("redis-sentinel", func(t *testing.T) {
		t.Parallel()
		r, err := redistest.StartSentinel(redistest.Default)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Remove)
		fightOver(t, r.URL()+"?wait=1", driver.ByLease, func() {})
	})
}

func fightOver(t *testing.T, url string, bound driver.Bound, trouble func()) {
	t.Helper()
	took := processTime
	if full() {
		took = processTimeFull
	}
	f := newFight(t, url, bound)
	f.disturb(took, trouble)
	f.finish()
	events, err := history.Read(f.logs...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.New(append(events, f.events...))
	if err != nil {
		t.Fatal(err)
	}
	effects, err := h.Effects()
	if err != nil {
		t.Error(err)
	}
	if err := h.Check(time.Minute); err != nil {
		t.Error(err)
	}
	t.Logf("%d grants, %d effects, %d refused, %d unknown, %d open; %d kills, %d stops", len(h.Grants), effects, h.Refused, h.Unknown, h.Open, f.kills, f.stops)
	if floor := grantFloor * int(took/time.Second); len(h.Grants) < floor || effects < floor/4 || f.kills == 0 || f.stops == 0 {
		t.Error("too little happened to prove anything")
	}
	if t.Failed() {
		t.Logf("events: %s", keepEvents(f.seed, h.Events))
	}
	f.free()
}

// fight is the processes and what was done to them.
type fight struct {
	t            *testing.T
	url          string
	dir          string
	fenced       bool
	seed         uint64
	random       *rand.Rand
	fighters     []*fighter
	logs         []string
	events       []history.Event
	kills, stops int
}

type fighter struct {
	cmd   *exec.Cmd
	stdin io.Closer
	proc  string
	log   string
	out   strings.Builder
}

func newFight(t *testing.T, url string, bound driver.Bound) *fight {
	t.Helper()
	f := &fight{t: t, url: url, dir: t.TempDir(), seed: rand.Uint64(), fenced: bound == driver.ByLease}
	f.random = rand.New(rand.NewPCG(f.seed, 0))
	for _, name := range workerLocks {
		if err := os.WriteFile(filepath.Join(f.dir, name), make([]byte, 16), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(f.end)
	for range processes {
		f.fighters = append(f.fighters, f.start())
	}
	return f
}

// start starts one worker process.
func (f *fight) start() *fighter {
	f.t.Helper()
	x := &fighter{proc: fmt.Sprintf("p%d", len(f.logs))}
	x.log = filepath.Join(f.dir, x.proc+".jsonl")
	config, err := json.Marshal(workerConfig{
		URL: f.url, Log: x.log, Proc: x.proc, Seed: f.random.Uint64(), Dir: f.dir, Fenced: f.fenced,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	x.cmd = exec.Command(os.Args[0]) //nolint:noctx,gosec // ended by its stdin, or killed; and it is this very program
	x.cmd.Env = append(os.Environ(), workerEnv+"="+string(config))
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.out
	if x.stdin, err = x.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.logs = append(f.logs, x.log)
	return x
}

// disturb kills and stops processes, and makes other trouble between.
func (f *fight) disturb(took time.Duration, trouble func()) {
	for end := time.Now().Add(took); time.Now().Before(end); {
		pause(nil, 50*time.Millisecond+time.Duration(f.random.Int64N(int64(300*time.Millisecond))))
		trouble()
		i := f.random.IntN(len(f.fighters))
		if _, err := os.Stat(f.fighters[i].log); err != nil {
			continue // it has not begun
		}
		if f.random.IntN(3) > 0 {
			f.stop(f.fighters[i])
		} else {
			f.kill(f.fighters[i])
			f.fighters[i] = f.start()
		}
	}
}

// stop stops a process, at times for longer than its leases live, and lets it
// go on.
func (f *fight) stop(x *fighter) {
	f.stops++
	_ = x.cmd.Process.Signal(syscall.SIGSTOP)
	d := time.Duration(f.random.Int64N(int64(200 * time.Millisecond)))
	if f.random.IntN(8) == 0 {
		d += workerTTL
	}
	pause(nil, d)
	_ = x.cmd.Process.Signal(syscall.SIGCONT)
}

// kill kills a process. It believed in its leases until then at least: until
// the last thing that it wrote.
func (f *fight) kill(x *fighter) {
	f.kills++
	at := history.Monotonic()
	_ = x.cmd.Process.Kill()
	_ = x.cmd.Wait() // says that it was killed
	events, err := history.Read(x.log)
	if err != nil {
		f.t.Error(err)
	}
	for i := range events {
		at = max(at, events[i].At)
	}
	f.events = append(f.events, history.Event{At: at + 1, Kind: history.Killed, Proc: x.proc})
}

// finish lets all processes end by themselves.
func (f *fight) finish() {
	for _, x := range f.fighters {
		_ = x.stdin.Close()
	}
	for _, x := range f.fighters {
		hangs := time.AfterFunc(time.Minute, func() { _ = x.cmd.Process.Signal(syscall.SIGQUIT) })
		if err := x.cmd.Wait(); err != nil {
			f.t.Errorf("%s: %v\n%s", x.proc, err, x.out.String())
		}
		hangs.Stop()
	}
}

// end is for a test that did not get to finish.
func (f *fight) end() {
	for _, x := range f.fighters {
		if x.cmd.ProcessState == nil {
			_ = x.cmd.Process.Kill()
			_ = x.cmd.Wait()
		}
	}
}

// free sees that those who were killed have left nothing taken.
func (f *fight) free() {
	f.t.Helper()
	c := openClient(f.t, f.url, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range workerNames {
		o := &holdfast.AcquireOptions{}
		if name == "permits-0" {
			o.Permits, o.Limit = permitLimit, permitLimit
		}
		l, err := c.Acquire(ctx, name, o)
		if err != nil {
			f.t.Errorf("still taken: %v", err)
			continue
		}
		_ = l.Release(ctx)
	}
}
