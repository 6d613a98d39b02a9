package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/history"
)

// candidateEnv tells the test binary to be a candidate: its value is the
// workerConfig.
const candidateEnv = "HOLDFAST_INTEGRATION_CANDIDATE"

const (
	candidates  = 5
	electionTTL = 2 * time.Second
	theOffice   = "lock-0"
	// gapBound is how long nobody may lead, beyond what the store needs to find
	// out that a leader has died. An idle machine needs some ms.
	gapBound = 20 * time.Second
)

// candidateMain is a program that is active in one place only, until its stdin
// ends. What it logs as a hold is its work: from its begin to its very end.
func candidateMain(config string) int {
	var c workerConfig
	err := json.Unmarshal([]byte(config), &c)
	if err == nil {
		err = c.candidate()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "candidate:", err)
		return 1
	}
	return 0
}

func (c *workerConfig) candidate() error {
	rec, err := history.Create(c.Log, c.Proc)
	if err != nil {
		return err
	}
	client, err := holdfast.Open(context.Background(), c.URL, &holdfast.Options{TTL: electionTTL, Logger: silent})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	e := client.Election(theOffice).With(holdfast.ElectionOptions{Value: c.Proc, Label: c.Proc})
	work := func(ctx context.Context, term *holdfast.Term) error { return c.work(ctx, rec, term) }
	if c.Hasty {
		err = hasty(ctx, e, c.Proc, work)
	} else {
		err = e.Run(ctx, work)
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	closed := client.Close()
	if c.Rough && errors.Is(closed, holdfast.ErrUnavailable) {
		closed = nil
	}
	return errors.Join(err, closed, rec.Close())
}

// hasty is what must not be done: it resigns when it is called off, and not when
// its work has stopped.
func hasty(ctx context.Context, e *holdfast.Election, value string, work func(context.Context, *holdfast.Term) error) error {
	term, err := e.Campaign(ctx, value)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- work(ctx, term) }()
	<-ctx.Done()
	return errors.Join(term.Resign(ctx), <-done)
}

// work raises the counter again and again, without a look at the lease, and takes
// a moment to stop. If the process stood still meanwhile, nobody could stop it: then
// it counts as work until the deadline that it knew, and the counter must refuse what
// comes later.
func (c *workerConfig) work(ctx context.Context, rec *history.Recorder, term *holdfast.Term) error {
	op := rec.NextOp()
	add := func(e history.Event) {
		e.Op, e.Name = op, theOffice
		rec.Add(e)
	}
	add(history.Event{Kind: history.Acquire, Mode: history.Exclusive, N: 1})
	add(history.Event{Kind: history.Granted, Token: term.Token()})
	var until int64 // the deadline, if the process stood still
	defer func() {
		add(history.Event{Kind: history.Release, Deadline: until})
		add(history.Event{Kind: history.Released, OK: until == 0})
	}()
	file, err := os.OpenFile(filepath.Join(c.Dir, theOffice), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // what is written is written
	// What a leader of the past has not written yet, is refused from here on.
	if taken, err := c.update(file, term.Token(), func(value uint64) uint64 { return value }); err != nil || !taken {
		return err
	}
	for stopping := 0; stopping < 5; {
		if ctx.Err() != nil {
			stopping++
		}
		now, deadline := rec.Now(), deadlineOf(rec, term)
		was, _, err := readCounter(file)
		if err != nil {
			return err
		}
		pause(nil, 3*time.Millisecond)
		if rec.Now()-now > int64(electionTTL/6) { // the grace
			until = deadline
		}
		if written, err := c.write(file, was+1, term.Token()); err != nil || !written {
			return err
		}
		add(history.Event{Kind: history.Effect, Was: was, Now: was + 1})
	}
	return ctx.Err()
}

// deadlineOf is a term's on the recorder's clock; 0 if it has none, or is over.
func deadlineOf(rec *history.Recorder, term *holdfast.Term) int64 {
	at, ok := term.Deadline()
	if !ok || !term.Valid() {
		return 0
	}
	return rec.Now() + int64(time.Until(at))
}

// TestElections restarts five candidates one after the other, stops a leader for
// longer than its term where that ends by itself, and then kills leaders, in real processes: the work of two terms never overlaps, tokens grow,
// no update of what they work on is lost, and the time without a leader is bounded.
func TestElections(t *testing.T) {
	t.Parallel()
	for _, s := range stores {
		if s.processes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				rollOver(t, s)
			})
		}
	}
}

// polls are the candidates, and an observer of their election.
type polls struct {
	f    *fight
	seen chan holdfast.Leader
	last uint64 // the token of the latest leader
	// hasty candidates resign before their work has stopped.
	hasty bool
	rough atomic.Bool // the store may be away for a moment
}

// A check that finds nothing must be one that could have found something.
func TestElectionsSeeHastyLeaders(t *testing.T) {
	t.Parallel()
	file := slices.IndexFunc(stores, func(s storeCase) bool { return s.name == "file" })
	p := newPolls(t, stores[file].start(t), stores[file].bound)
	p.hasty = true
	p.rollingRestart()
	p.leader()
	p.f.finish()
	events, err := history.Read(p.f.logs...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.New(events)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Beliefs(); err == nil || !strings.Contains(err.Error(), "two at once") {
		t.Errorf("leaders beside each other were not seen: %v", err)
	}
}

// rollingRestart restarts the leader, and then those who follow it.
func (p *polls) rollingRestart() {
	p.f.t.Helper()
	for range candidates {
		p.join()
	}
	for range candidates {
		p.leave(p.leader())
		p.join()
	}
}

// standStill stops a leader until another leads in its place.
func (p *polls) standStill() {
	p.f.t.Helper()
	x := p.leader()
	_ = x.cmd.Process.Signal(syscall.SIGSTOP)
	next := p.elected() // it may stand still in the middle of a write, which keeps others from writing
	_ = x.cmd.Process.Signal(syscall.SIGCONT)
	p.works(next)
	p.leave(next)
}

func rollOver(t *testing.T, s storeCase) {
	t.Helper()
	p := newPolls(t, s.start(t), s.bound)
	p.rollingRestart()
	if s.bound == driver.ByLease {
		p.standStill()
	}
	const killed = 3
	for range killed {
		x := p.leader()
		p.f.kill(x)
		p.forget(x)
		p.join()
	}
	p.leader()
	p.f.finish()
	p.judge(killed)
}

// gapsOf are the times between the end of the work of one leader and the begin
// of the next one's.
func gapsOf(grants []*history.Grant) (resigned, died []time.Duration) {
	grants = slices.Clone(grants)
	slices.SortFunc(grants, func(a, b *history.Grant) int { return cmp.Compare(a.Returned, b.Returned) })
	for i, g := range grants[:len(grants)-1] {
		gap := time.Duration(grants[i+1].Returned - g.Ended).Round(100 * time.Microsecond)
		if strings.Contains(g.Why, "killed") || g.Why == "deadline" {
			died = append(died, gap)
		} else {
			resigned = append(resigned, gap)
		}
	}
	return resigned, died
}

func newPolls(t *testing.T, url string, bound driver.Bound) *polls {
	t.Helper()
	p := &polls{f: &fight{t: t, url: url, dir: t.TempDir(), fenced: bound == driver.ByLease}, seen: make(chan holdfast.Leader, 1024)}
	if err := os.WriteFile(filepath.Join(p.f.dir, theOffice), make([]byte, 16), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.f.end)
	client := openClient(t, url, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range client.Election(theOffice).Observe(ctx) {
			if err != nil && !p.rough.Load() {
				t.Errorf("observer: %v", err)
			}
			p.seen <- l
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

// join starts one more candidate.
func (p *polls) join() {
	p.f.t.Helper()
	x := &fighter{proc: fmt.Sprintf("p%d", len(p.f.logs))}
	x.log = filepath.Join(p.f.dir, x.proc+".jsonl")
	config, err := json.Marshal(workerConfig{URL: p.f.url, Log: x.log, Proc: x.proc, Dir: p.f.dir, Fenced: p.f.fenced, Hasty: p.hasty, Rough: p.rough.Load()})
	if err != nil {
		p.f.t.Fatal(err)
	}
	x.cmd = exec.Command(os.Args[0]) //nolint:noctx,gosec // ended by its stdin, or killed; and it is this very program
	x.cmd.Env = append(os.Environ(), candidateEnv+"="+string(config))
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.out
	if x.stdin, err = x.cmd.StdinPipe(); err != nil {
		p.f.t.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		p.f.t.Fatal(err)
	}
	p.f.logs = append(p.f.logs, x.log)
	p.f.fighters = append(p.f.fighters, x)
}

// leader waits until a new leader works.
func (p *polls) leader() *fighter {
	p.f.t.Helper()
	x := p.elected()
	p.works(x)
	return x
}

// elected waits until the observer has seen a new leader, and finds its process.
// What the observer sees must be in order.
func (p *polls) elected() *fighter {
	p.f.t.Helper()
	for limit := time.After(3 * gapBound); ; {
		var l holdfast.Leader
		select {
		case l = <-p.seen:
		case <-limit:
			p.f.t.Fatal("the observer sees no new leader")
		}
		switch {
		case l.Token < p.last && !l.None():
			p.f.t.Errorf("the observer saw token %d after %d", l.Token, p.last)
		case l.Value == "" || l.Token <= p.last: // nobody, who has said nothing yet, or the one we know
		default:
			p.last = l.Token
			i := slices.IndexFunc(p.f.fighters, func(x *fighter) bool { return x.proc == l.Value })
			if i < 0 {
				p.f.t.Fatalf("%q leads, and is no candidate", l.Value)
			}
			return p.f.fighters[i]
		}
	}
}

// works waits until a leader has done something.
func (p *polls) works(x *fighter) {
	p.f.t.Helper()
	for end := time.Now().Add(3 * gapBound); time.Now().Before(end); pause(nil, 5*time.Millisecond) {
		if b, err := os.ReadFile(x.log); err == nil && strings.Count(string(b), `"effect"`) > 5 {
			return
		}
	}
	p.f.t.Fatalf("%s leads and does nothing", x.proc)
}

// leave lets a candidate end by itself.
func (p *polls) leave(x *fighter) {
	p.f.t.Helper()
	_ = x.stdin.Close()
	if err := x.cmd.Wait(); err != nil {
		p.f.t.Errorf("%s: %v\n%s", x.proc, err, x.out.String())
	}
	p.forget(x)
}

func (p *polls) forget(x *fighter) {
	p.f.fighters = slices.DeleteFunc(p.f.fighters, func(other *fighter) bool { return other == x })
}
