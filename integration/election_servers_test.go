package integration_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/history"
	"github.com/holdfast-go/holdfast/internal/etcdtest"
	"github.com/holdfast-go/holdfast/internal/zktest"
)

// member is one of the servers that keep a store together.
type member interface {
	Kill()
	Signal(sig syscall.Signal) error
}

// trio is three of them.
type trio struct {
	url     string
	bound   driver.Bound
	members []member
	// begin starts a member that was killed. leader waits until all are there, and
	// finds who leads them.
	begin  func(i int) error
	leader func() (int, error)
	// sleeps: a leader that stood still had better not go on beside its successor.
	// etcd's then ends leases that live (docs/store-etcd.md).
	sleeps bool
}

func startEtcdTrio(t *testing.T) *trio {
	t.Helper()
	c, err := etcdtest.Start(etcdtest.Default, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Remove)
	s := &trio{url: c.URL(), bound: driver.ByLease, sleeps: true, begin: func(i int) error { return c.Nodes[i].Start() }}
	for _, n := range c.Nodes {
		s.members = append(s.members, n)
	}
	s.leader = func() (int, error) {
		for end := time.Now().Add(gapBound); time.Now().Before(end); pause(nil, 20*time.Millisecond) {
			leader, serving := -1, 0
			for i, n := range c.Nodes {
				if health, err := n.Get("/health"); err == nil && strings.Contains(health, `"true"`) {
					serving++
				}
				if figures, err := n.Get("/metrics"); err == nil && strings.Contains(figures, "\netcd_server_is_leader 1\n") {
					leader = i
				}
			}
			if leader >= 0 && serving == len(c.Nodes) {
				return leader, nil
			}
		}
		return 0, errors.New("no leader of three")
	}
	return s
}

func startZooKeeperTrio(t *testing.T) *trio {
	t.Helper()
	e, err := zktest.StartEnsemble(zktest.Debian)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Remove)
	s := &trio{url: e.URL(), bound: driver.ByConnection, begin: func(i int) error { return e[i].Begin() }}
	for _, member := range e {
		s.members = append(s.members, member)
	}
	s.leader = func() (int, error) {
		leader, _, err := e.Leader()
		for i := range e {
			if e[i] == leader {
				return i, err
			}
		}
		return 0, err
	}
	return s
}

// TestElectionsServersRestart lets five candidates elect while the store's three
// servers are restarted one after the other, the one that leads them is killed, and
// the next stands still until it has been replaced: no two work at once, and the time
// in which nobody does is bounded.
func TestElectionsServersRestart(t *testing.T) {
	t.Parallel()
	for store, start := range map[string]func(*testing.T) *trio{"etcd": startEtcdTrio, "zookeeper": startZooKeeperTrio} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			p := newPolls(t, s.url, s.bound)
			p.rough.Store(true)
			for range candidates {
				p.join()
			}
			p.allStand(s.url)
			rounds := 1
			if full() {
				rounds = 5
			}
			for range rounds {
				s.restart(t, p)
			}
			s.standStill(t, p, rounds)
			p.f.finish()
			p.judge(0)
		})
	}
}

// restart kills and restarts all, and then the leader again.
func (s *trio) restart(t *testing.T, p *polls) {
	t.Helper()
	for i := range s.members {
		s.led(t)
		s.again(t, p, i)
	}
	s.again(t, p, s.led(t))
}

func (s *trio) again(t *testing.T, p *polls, i int) {
	t.Helper()
	s.members[i].Kill()
	p.goesOn()
	if err := s.begin(i); err != nil {
		t.Fatal(err)
	}
}

// standStill stops the leader for longer than all terms and sessions.
func (s *trio) standStill(t *testing.T, p *polls, rounds int) {
	t.Helper()
	for range rounds {
		leader := s.members[s.led(t)]
		if err := leader.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		pause(nil, 2*electionTTL)
		p.goesOn()
		if s.sleeps {
			return
		}
		if err := leader.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		s.led(t)
		p.goesOn()
	}
}

func (s *trio) led(t *testing.T) int {
	t.Helper()
	leader, err := s.leader()
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// allStand waits until one leads and all the others wait to follow.
func (p *polls) allStand(url string) {
	t := p.f.t
	t.Helper()
	c := openClient(t, url, nil)
	defer closeClient(t, c)
	for end := time.Now().Add(3 * gapBound); time.Now().Before(end); pause(nil, 20*time.Millisecond) {
		if r, err := c.Inspect(t.Context(), theOffice); err == nil && len(r.Holders) == 1 && len(r.Waiters) == candidates-1 {
			return
		}
	}
	t.Fatal("not all candidates stand for the election")
}

// goesOn waits until some leader has done something from now on.
func (p *polls) goesOn() {
	p.f.t.Helper()
	effects := func() (n int) {
		for _, log := range p.f.logs {
			if b, err := os.ReadFile(log); err == nil {
				n += strings.Count(string(b), `"effect"`)
			}
		}
		return n
	}
	before := effects()
	for end := time.Now().Add(3 * gapBound); time.Now().Before(end); pause(nil, 20*time.Millisecond) {
		if effects() > before+5 {
			return
		}
	}
	p.f.t.Fatal("nobody works")
}

// judge checks what all have seen; so many at least must have died.
func (p *polls) judge(killed int) {
	t := p.f.t
	t.Helper()
	events, err := history.Read(p.f.logs...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.New(append(events, p.f.events...))
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
	gaps, deaths := gapsOf(h.Grants)
	t.Logf("%d terms, %d effects; without a leader after a resignation: %v; after a kill or a stop: %v", len(h.Grants), effects, gaps, deaths)
	if len(h.Grants) == 0 || len(deaths) < killed || effects == 0 {
		t.Error("too little happened to prove anything")
	}
	for _, gap := range append(gaps, deaths...) {
		if gap > gapBound+electionTTL {
			t.Errorf("nobody led for %v", gap)
		}
	}
	if t.Failed() {
		t.Logf("events: %s", keepEvents(p.f.seed, h.Events))
	}
	p.f.free()
}
