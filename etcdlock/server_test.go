package etcdlock

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/etcdtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// full tells whether the long tests run too.
func full() bool { return os.Getenv("HOLDFAST_FULL") != "" }

// TestMain plays the suite's other processes, if told so, and ends the shared
// server when all is done.
func TestMain(m *testing.M) {
	drivertest.Main(openURL)
	status := m.Run()
	removeShared()
	os.Exit(status)
}

const patience = storetest.Patience

// cluster is servers of a test's own.
type cluster struct{ *etcdtest.Cluster }

// shared is the server of all tests that do it no harm.
var shared = sync.OnceValues(func() (*etcdtest.Cluster, error) { return etcdtest.Start(etcdtest.Default, 1) })

var sharedUsed atomic.Bool

func sharedServer(tb testing.TB) cluster {
	tb.Helper()
	sharedUsed.Store(true)
	c, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return cluster{c}
}

func removeShared() {
	if !sharedUsed.Load() {
		return
	}
	if c, err := shared(); err == nil {
		c.Remove()
	}
}

// ownServer is a server for one test.
func ownServer(tb testing.TB, args ...string) cluster {
	tb.Helper()
	return ownCluster(tb, etcdtest.Default, 1, args...)
}

func ownCluster(tb testing.TB, v etcdtest.Version, nodes int, args ...string) cluster {
	tb.Helper()
	c, err := etcdtest.Start(v, nodes, args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Remove)
	return cluster{c}
}

func signal(tb testing.TB, n *etcdtest.Node, sig syscall.Signal) {
	tb.Helper()
	if err := n.Signal(sig); err != nil {
		tb.Fatal(err)
	}
}

// api is a client of a test's own.
func (c cluster) api(tb testing.TB) *clientv3.Client {
	tb.Helper()
	hosts := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		hosts[i] = "http://" + n.Addr
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: hosts, DialTimeout: patience, Logger: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// open makes a store of a test's own.
func (c cluster) open(tb testing.TB) *store {
	tb.Helper()
	return openAt(tb, c.URL())
}
