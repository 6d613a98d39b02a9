package redislock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// outage is what befalls a server while one of the things is done that a client does.
type outage struct {
	t          *testing.T
	server     *server
	begin, end func()
	forgets    bool
}

func killed(t *testing.T, forgets bool, args ...string) *outage {
	t.Helper()
	s := ownServer(t, args...)
	return &outage{t, s, s.Kill, func() {
		if err := s.Launch(); err != nil {
			t.Error(err)
		}
	}, forgets}
}

func stopped(t *testing.T) *outage {
	t.Helper()
	s := ownServer(t)
	t.Cleanup(func() { s.Signal(syscall.SIGCONT) })
	return &outage{t, s, func() { s.Signal(syscall.SIGSTOP) }, func() { s.Signal(syscall.SIGCONT) }, false}
}

// Each outage in each of open, acquire, wait, renew and release, as the caller sees it.
func TestOutageInEachPhase(t *testing.T) {
	t.Parallel()
	outages := map[string]func(t *testing.T) *outage{
		"restarted with its data": func(t *testing.T) *outage {
			t.Helper()
			return killed(t, false, "--appendonly", "yes", "--appendfsync", "always")
		},
		"restarted without its data": func(t *testing.T) *outage {
			t.Helper()
			return killed(t, true)
		},
		"stopped": stopped,
	}
	phases := map[string]func(*outage){
		"open": (*outage).atOpen, "acquire": (*outage).inAcquire, "wait": (*outage).inWait, "renew": (*outage).inRenew, "release": (*outage).inRelease,
	}
	for what, of := range outages {
		for phase, test := range phases {
			t.Run(what+" in "+phase, func(t *testing.T) {
				t.Parallel()
				test(of(t))
			})
		}
	}
}

// away asserts an error that says that the store is away, and no more.
func (o *outage) away(what string, err error) {
	o.t.Helper()
	if !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrIndeterminate) || errors.Is(err, holdfast.ErrHeld) || errors.Is(err, holdfast.ErrLost) {
		o.t.Errorf("%s: %v", what, err)
	}
}

func (o *outage) locks() *holdfast.Client {
	o.t.Helper()
	return openLocks(o.t, o.server.url(), &holdfast.Options{TTL: 6 * time.Second})
}

func (o *outage) acquires(c *holdfast.Client, opts *holdfast.AcquireOptions) *holdfast.Lease {
	o.t.Helper()
	lease, err := c.Acquire(o.t.Context(), "name", opts)
	if err != nil {
		o.t.Fatal(err)
	}
	return lease
}

// acquiring acquires from now on.
func (o *outage) acquiring(c *holdfast.Client) (got chan *holdfast.Lease) {
	got = make(chan *holdfast.Lease, 1)
	go func() {
		ctx, cancel := context.WithTimeout(o.t.Context(), patience)
		defer cancel()
		lease, err := c.Acquire(ctx, "name", nil)
		if err != nil {
			o.t.Errorf("acquire: %v", err)
		}
		got <- lease
	}()
	return got
}

func (o *outage) atOpen() {
	o.begin()
	_, err := holdfast.Open(o.t.Context(), o.server.url(), nil)
	o.away("open", err)
	o.end()
	o.acquires(o.locks(), nil)
}

func (o *outage) inAcquire() {
	c := o.locks()
	before := o.acquires(c, nil)
	if err := before.Release(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	o.begin()
	_, err := c.TryAcquire(o.t.Context(), "name", nil)
	o.away("try", err)
	got := o.acquiring(c)
	o.end()
	if lease := <-got; lease != nil && (!lease.Valid() || lease.Token() <= before.Token()) {
		o.t.Errorf("token %d after %d", lease.Token(), before.Token())
	}
}

// Who waits gets the name when its holder has released it, or nobody knows any more
// that it was held.
func (o *outage) inWait() {
	a, b := o.locks(), o.locks()
	first := o.acquires(a, nil)
	got := o.acquiring(b)
	until(o.t, "one waits", func() bool {
		r, err := a.Inspect(o.t.Context(), "name")
		return err == nil && len(r.Waiters) == 1
	})
	o.begin()
	o.end()
	if o.forgets {
		<-first.Context().Done()
		if cause := context.Cause(first.Context()); !errors.Is(cause, holdfast.ErrLost) {
			o.t.Errorf("the first holder: %v", cause)
		}
	} else {
		select {
		case <-got:
			o.t.Error("the name was granted while it was held")
			return
		case <-time.After(500 * time.Millisecond):
		}
		if err := first.Release(o.t.Context()); err != nil {
			o.t.Errorf("release: %v", err)
		}
	}
	if lease := <-got; lease != nil && (!lease.Valid() || lease.Token() <= first.Token()) {
		o.t.Errorf("token %d after %d", lease.Token(), first.Token())
	}
}

func (o *outage) inRenew() {
	a, b := o.locks(), o.locks()
	lease := o.acquires(a, &holdfast.AcquireOptions{TTL: 20 * time.Second})
	o.begin()
	o.away("renewal", lease.Renew(o.t.Context(), time.Minute))
	o.end()
	if o.forgets {
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, holdfast.ErrLost) {
			o.t.Error(cause)
		}
		o.acquires(b, nil)
		return
	}
	until(o.t, "a renewal", func() bool { return lease.Renew(o.t.Context(), 2*time.Minute) == nil })
	if end, ok := lease.Deadline(); !ok || time.Until(end) < time.Minute || !lease.Valid() {
		o.t.Errorf("valid %t, until %v", lease.Valid(), end)
	}
	until(o.t, "another is told that it is held", func() bool { // its connection may be cut
		_, err := b.TryAcquire(o.t.Context(), "name", nil)
		if err == nil {
			o.t.Error("it was granted to another")
		}
		return errors.Is(err, holdfast.ErrHeld)
	})
}

// A release that could not be made goes on in the background: nobody waits for the
// lease's hour.
func (o *outage) inRelease() {
	a, b := o.locks(), o.locks()
	lease := o.acquires(a, &holdfast.AcquireOptions{TTL: time.Hour})
	o.begin()
	ctx, cancel := context.WithTimeout(o.t.Context(), 200*time.Millisecond)
	defer cancel()
	o.away("release", lease.Release(ctx))
	if lease.Valid() {
		o.t.Error("it is valid though it was released")
	}
	o.end()
	<-o.acquiring(b)
}

// A server that refuses, for a reason of its own.
type refusing struct {
	words        string // of its refusal
	args         []string
	enter, leave func(t *testing.T, s *server)
}

// says is a command to the server.
func says(words ...string) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		t.Helper()
		if _, err := s.Do(words...); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever a server refuses with, in acquire, wait, renew and release: the call was not
// made, nothing is lost by it, and all goes on when the server serves again.
func TestRefusalsInEachPhase(t *testing.T) {
	t.Parallel()
	for _, r := range []refusing{
		{"READONLY", nil, says("REPLICAOF", "127.0.0.1", "1"), says("REPLICAOF", "NO", "ONE")},
		{"MASTERDOWN", []string{"--replica-serve-stale-data", "no"}, says("REPLICAOF", "127.0.0.1", "1"), says("REPLICAOF", "NO", "ONE")},
		{"NOREPLICAS", nil, says("CONFIG", "SET", "min-replicas-to-write", "1"), says("CONFIG", "SET", "min-replicas-to-write", "0")},
		{"OOM", nil, says("CONFIG", "SET", "maxmemory", "1"), says("CONFIG", "SET", "maxmemory", "0")},
		{"MISCONF", []string{"--save", "3600 100000", "--dbfilename", "taken"}, saveInVain, says("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")},
		{"BUSY", []string{"--lua-time-limit", "50"}, runForEver, says("SCRIPT", "KILL")},
		{
			"LOADING",
			[]string{"--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"},
			loadLong, func(*testing.T, *server) {},
		},
	} {
		t.Run(r.words, func(t *testing.T) {
			t.Parallel()
			r.test(t)
		})
	}
}

func (r *refusing) test(t *testing.T) {
	t.Helper()
	server := ownServer(t, r.args...)
	s := server.open(t)
	held, wanted, renewed, released := hold(t, s, "held"), hold(t, s, "wanted"), hold(t, s, "renewed"), hold(t, s, "released")
	place := enqueue(t, s, "wanted")
	waiter := request("held")
	waiter.Queue = true
	refused := 0
	tell := func(what string, ok bool, err error) {
		t.Helper()
		switch {
		case err == nil && !ok:
			t.Errorf("%s: answered, as if it were lost", what)
		case err != nil && s.Classify(err) != driver.Unavailable:
			t.Errorf("%s: %v is %v", what, err, s.Classify(err))
		case err != nil && strings.Contains(err.Error(), r.words):
			refused++
		}
	}
	renew := func(ref driver.Ref) (bool, error) {
		res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]
		return res.Status == driver.Renewed, res.Err
	}
	r.enter(t, server)
	until(t, "a refusal", func() bool { // the first answer may be that a connection was cut
		_, err := s.Acquire(t.Context(), request("new"))
		if err == nil || s.Classify(err) != driver.Indeterminate {
			tell("acquire", true, err)
		}
		return refused > 0
	})
	_, err := s.Acquire(t.Context(), waiter)
	tell("wait", true, err)
	beat := s.Beat(t.Context(), []driver.Ref{place})[0]
	tell("beat", beat.Status == driver.Waiting, beat.Err)
	ok, err := renew(renewed)
	tell("renewal", ok, err)
	freed, err := s.Release(t.Context(), &driver.ReleaseRequest{Ref: released})
	tell("release", freed, err)
	r.leave(t, server)
	for _, ref := range []driver.Ref{held, wanted, renewed} {
		if !retry(t, s, func() (bool, error) { return renew(ref) }) {
			t.Errorf("%s is lost", ref.Name.Full)
		}
	}
	if !freed {
		free(t, s, released)
	}
	free(t, s, wanted)
	if beat := s.Beat(t.Context(), []driver.Ref{place})[0]; beat.Status != driver.Granted {
		t.Errorf("the place: %+v", beat)
	}
}

// saveInVain makes the server find that it cannot save.
func saveInVain(t *testing.T, s *server) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.Dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	says("BGSAVE")(t, s)
	until(t, "a save that fails", func() bool { return s.Info("rdb_last_bgsave_status") == "err" })
}

// runForEver keeps it busy with a script of somebody else's.
func runForEver(t *testing.T, s *server) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.Do("EVAL", "while true do end", "0")
	}()
	t.Cleanup(func() { <-ended })
	until(t, "the server is busy", func() bool {
		_, err := s.Do("GET", "x")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
}

// loadLong gives it so much data to load that it takes a while.
func loadLong(t *testing.T, s *server) {
	t.Helper()
	for range 20 {
		words := []string{"MSET"}
		for i := range 500 {
			words = append(words, "key"+time.Duration(i).String(), "value")
		}
		says(words...)(t, s)
	}
	says("BGREWRITEAOF")(t, s)
	until(t, "the file is rewritten", func() bool { return s.Info("aof_rewrite_in_progress") == "0" })
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Under a clock that is set to and fro all get their turns, and tokens only grow.
func TestServerClockToAndFro(t *testing.T) {
	t.Parallel()
	server, clock := bent(t)
	var last atomic.Uint64
	var turns atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 3)
	for range 3 {
		locks := openLocks(t, server.url(), nil)
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				lease, err := locks.Acquire(ctx, "name", nil)
				if err != nil {
					continue
				}
				for { // a clock that is set forward may let two in: then they come in any order
					now := last.Load()
					if lease.Token() > now && last.CompareAndSwap(now, lease.Token()) || lease.Token() <= now {
						break
					}
				}
				turns.Add(1)
				_ = lease.Release(t.Context())
			}
		}()
	}
	for i, ahead := range []time.Duration{time.Hour, 0, -time.Hour, 2 * time.Hour, -2 * time.Hour, time.Minute, 0} {
		if err := clock.Set(ahead); err != nil {
			t.Fatal(err)
		}
		begin, before := turns.Load(), last.Load()
		until(t, "turns", func() bool { return turns.Load() > begin+20 })
		if now := last.Load(); now <= before {
			t.Errorf("step %d: token %d after %d", i, now, before)
		}
	}
	cancel()
	for range 3 {
		<-ended
	}
}
