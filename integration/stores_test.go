package integration_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/etcdlock"
	_ "github.com/holdfast-go/holdfast/filelock"
	"github.com/holdfast-go/holdfast/internal/etcdtest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/zktest"
	_ "github.com/holdfast-go/holdfast/memlock"
	_ "github.com/holdfast-go/holdfast/redislock"
	_ "github.com/holdfast-go/holdfast/zklock"
)

// storeCase is a store that the tests of this module run on. README.md says
// what it takes to add one.
type storeCase struct {
	name  string
	class driver.Class
	bound driver.Bound
	// processes tells whether other processes reach it by the URL.
	processes bool
	// start brings up an empty store for one test, sees that it ends with it,
	// and returns the URL.
	start func(tb testing.TB) string
}

var memories atomic.Int64

var stores = []storeCase{
	{
		name: "memory", class: driver.ClassB, bound: driver.ByLease,
		start: func(testing.TB) string { return fmt.Sprintf("memory://%d", memories.Add(1)) },
	},
	{
		name: "file", class: driver.ClassB, bound: driver.ByConnection, processes: true,
		start: func(tb testing.TB) string {
			tb.Helper()
			return "file://" + tb.TempDir()
		},
	},
	{
		name: "redis", class: driver.ClassC, bound: driver.ByLease, processes: true,
		start: func(tb testing.TB) string {
			tb.Helper()
			return startRedis(tb).URL()
		},
	},
	{
		name: "etcd", class: driver.ClassA, bound: driver.ByLease, processes: true,
		start: func(tb testing.TB) string {
			tb.Helper()
			return startEtcd(tb).URL()
		},
	},
	{
		name: "zookeeper", class: driver.ClassA, bound: driver.ByConnection, processes: true,
		start: func(tb testing.TB) string {
			tb.Helper()
			return startZooKeeper(tb).URL()
		},
	},
}

// startEtcd starts a server whose locks outlive it.
func startEtcd(tb testing.TB) *etcdtest.Cluster {
	tb.Helper()
	c, err := etcdtest.Start(etcdtest.Default, 1)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Remove)
	return c
}

// startZooKeeper starts a server whose locks outlive it.
func startZooKeeper(tb testing.TB) *zktest.Server {
	tb.Helper()
	s, err := zktest.Start(zktest.Debian)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return s
}

// startRedis starts a server whose locks outlive it.
func startRedis(tb testing.TB) *redistest.Server {
	tb.Helper()
	s, err := redistest.Start(redistest.Default, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return s
}

// TestMain is also the entry of the processes that tests start.
func TestMain(m *testing.M) {
	if config := os.Getenv(workerEnv); config != "" {
		os.Exit(workerMain(config))
	}
	if config := os.Getenv(candidateEnv); config != "" {
		os.Exit(candidateMain(config))
	}
	os.Exit(m.Run())
}

func openClient(t *testing.T, url string, opts *holdfast.Options) *holdfast.Client {
	t.Helper()
	if opts == nil {
		opts = &holdfast.Options{}
	}
	opts.Logger = silent
	c, err := holdfast.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closeClient closes it.
func closeClient(tb testing.TB, c *holdfast.Client) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Error(err)
	}
}

// What the table says decides what the other tests expect.
func TestStoresAreAsSaid(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			p := openClient(t, s.start(t), nil).Properties()
			if p.Store != s.name || p.Class != s.class || p.Bound != s.bound || !p.Fencing || !p.Shared || !p.Permits {
				t.Errorf("the table says %+v, the store %+v", s, p)
			}
		})
	}
}
