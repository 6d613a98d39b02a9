package main

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/internal/zktest"
	_ "github.com/holdfast-go/holdfast/zklock" // the store under test
)

// The contestants on ZooKeeper.
const (
	zookeeperFloor = "create an ephemeral sequential node, and delete it (go-zookeeper)"
	zookeeperLock  = "go-zookeeper's Lock"
)

// startZooKeeper starts one server, with the first contestant that needs it, its
// log in memory, so that the disk does not drown what is compared.
var startZooKeeper = sync.OnceValues(func() (string, error) {
	s, err := zktest.Start(zktest.Debian, "-XX:TieredStopAtLevel=4")
	if err != nil {
		return "", err
	}
	zookeeperStarted = s
	return s.Addr(), warm(s)
})

var zookeeperStarted *zktest.Server

func stopZooKeeper() {
	if zookeeperStarted != nil {
		zookeeperStarted.Remove()
	}
}

// warm works until the server's virtual machine has compiled what it runs.
func warm(s *zktest.Server) error {
	pair, done, err := zookeeperPairOf(zookeeperFloor, s.Addr())
	if err != nil {
		return err
	}
	defer done()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			for end := time.Now().Add(8 * time.Second); time.Now().Before(end) && errs[i] == nil; {
				errs[i] = pair("warm/" + strconv.Itoa(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

var zookeeper = network{store: "zookeeper", pairs: 2000, start: startZooKeeper, pair: zookeeperPairOf}

func zookeeperComparisons() []comparison {
	pair := zookeeper.uncontended(zookeeperFloor, ours, zookeeperLock)
	pair.targets = []target{{contestant: ours, over: zookeeperFloor, atMost: 1.2}, {contestant: ours, over: zookeeperLock, atMost: 1}}
	many := zookeeper.many(zookeeperFloor, ours, zookeeperLock)
	many.targets = []target{{contestant: ours, over: zookeeperFloor, atLeast: 0.9}, {contestant: ours, over: zookeeperLock, atLeast: 1.5}}
	sixteen := zookeeper.contended(16, 1, zookeeperLock, oursNoHandOff)
	sixteen.targets = append(sixteen.targets, target{contestant: oursNoHandOff, over: zookeeperLock, atLeast: 1.3})
	four := zookeeper.contended(4, 4, zookeeperLock, oursNoHandOff, ours)
	return []comparison{pair, many, sixteen, four}
}

// zookeeperPairOf makes one way to lock and unlock a name.
func zookeeperPairOf(name, addr string) (pair func(name string) error, done func(), err error) {
	if name == ours || name == oursNoHandOff {
		return holdfastAt(name, "zookeeper://"+addr)
	}
	conn, _, err := zk.Connect([]string{addr}, 30*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, nil, err
	}
	acl := zk.WorldACL(zk.PermAll)
	path := func(name string) string { return "/peer-" + strings.ReplaceAll(name, "/", "-") }
	if name == zookeeperLock {
		return func(name string) error {
			lock := zk.NewLock(conn, path(name), acl)
			if err := lock.Lock(); err != nil {
				return err
			}
			return lock.Unlock()
		}, conn.Close, nil
	}
	var made sync.Map
	return func(name string) error {
		if _, there := made.LoadOrStore(name, true); !there {
			if _, err := conn.Create(path(name), nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return err
			}
		}
		node, err := conn.Create(path(name)+"/n-", nil, zk.FlagEphemeral|zk.FlagSequence, acl)
		if err != nil {
			return err
		}
		return conn.Delete(node, -1)
	}, conn.Close, nil
}
