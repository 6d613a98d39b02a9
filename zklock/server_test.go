package zklock

import (
	"context"
	"flag"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/zktest"
)

// TestMain plays the suite's other processes, if told so, and ends the shared
// server when all is done.
func TestMain(m *testing.M) {
	drivertest.Main(openURL)
	_ = flag.Set("test.parallel", "4") // most of them wait most of the time; the command line still wins
	status := m.Run()
	removeShared()
	os.Exit(status)
}

const patience = storetest.Patience

// server is a ZooKeeper of a test's own.
type server struct{ *zktest.Server }

// shared is the server of all tests that neither disturb it nor count.
var shared = sync.OnceValues(func() (*zktest.Server, error) { return zktest.Start(zktest.Debian) })

var sharedUsed atomic.Bool

func sharedServer(tb testing.TB) *server {
	tb.Helper()
	sharedUsed.Store(true)
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return &server{s}
}

func removeShared() {
	if !sharedUsed.Load() {
		return
	}
	if s, err := shared(); err == nil {
		s.Remove()
	}
}

func (s *server) url() string                   { return s.URL() }
func (s *server) restart(context.Context) error { return s.Restart() }

func (s *server) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if err := s.Signal(sig); err != nil {
		tb.Fatal(err)
	}
}

// ownServer is a server for one test, with arguments of java's.
func ownServer(tb testing.TB, java ...string) *server {
	tb.Helper()
	s, err := zktest.Start(zktest.Debian, java...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return &server{s}
}

// ensemble is three servers of a test's own.
type ensemble struct{ zktest.Ensemble }

func newEnsemble(tb testing.TB, v zktest.Version) ensemble {
	tb.Helper()
	e, err := zktest.StartEnsemble(v)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Remove)
	return ensemble{e}
}

func (e ensemble) url() string { return e.URL() }

func (e ensemble) leader(tb testing.TB) (leader *server, followers []*server) {
	tb.Helper()
	first, rest, err := e.Leader()
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range rest {
		followers = append(followers, &server{s})
	}
	return &server{first}, followers
}
