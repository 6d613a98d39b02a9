package redislock

import (
	"context"
	"flag"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// TestMain plays the suite's other processes, if told so, and ends the shared
// server when all is done.
func TestMain(m *testing.M) {
	drivertest.Main(openURL)
	_ = flag.Set("test.parallel", "8") // most of them wait most of the time; the command line still wins
	status := m.Run()
	removeShared()
	os.Exit(status)
}

const patience = storetest.Patience

// server is a redis-server of a test's own.
type server struct{ *redistest.Server }

// shared is the server of all tests that change none of its settings.
var shared = sync.OnceValues(func() (*redistest.Server, error) {
	return redistest.Start(redistest.Default, "--appendonly", "yes", "--appendfsync", "always")
})

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

func (s *server) url() string  { return s.URL() }
func (s *server) addr() string { return s.Addr() }

func (s *server) restart(context.Context) error { return s.Restart() }

// ownServer is a server for one test.
func ownServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	return versionServer(tb, redistest.Default, args...)
}

func versionServer(tb testing.TB, v redistest.Version, args ...string) *server {
	tb.Helper()
	s, err := redistest.Start(v, args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return &server{s}
}

// client is a client of a test's own.
func (s *server) client(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// open makes a store of a test's own.
func (s *server) open(tb testing.TB) *store {
	tb.Helper()
	return openAt(tb, s.url())
}
