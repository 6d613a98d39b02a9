package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/zktest"
	_ "github.com/holdfast-go/holdfast/zklock" // the store under test
)

// The contestants on ZooKeeper.
const (
	zookeeperFloor = "create an ephemeral sequential node, and delete it (go-zookeeper)"
	zookeeperLock  = "go-zookeeper's Lock"
)

// zookeeperPairs is how many pairs one caller does in a round.
const zookeeperPairs = 2000

// zookeeperServer is started with the first contestant that needs it: one server,
// its log in memory, so that the disk does not drown what is compared.
var zookeeperServer = sync.OnceValues(func() (*zktest.Server, error) {
	s, err := zktest.Start(zktest.Debian)
	if err == nil {
		zookeeperStarted = s
		err = warm(s)
	}
	return s, err
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

func zookeeperContestant(name string, run func(pair func(name string) error) (float64, error)) contestant {
	return contestant{name, func() (float64, map[string]float64, error) {
		s, err := zookeeperServer()
		if err != nil {
			return 0, nil, err
		}
		pair, done, err := zookeeperPairOf(name, s.Addr())
		if err != nil {
			return 0, nil, err
		}
		defer done()
		figure, err := run(pair)
		return figure, nil, err
	}}
}

// zookeeperPair is one caller who locks and unlocks one name.
func zookeeperPair() comparison {
	run := func(pair func(string) error) (float64, error) {
		start := time.Now()
		for range zookeeperPairs {
			if err := pair("pair"); err != nil {
				return 0, err
			}
		}
		return float64(time.Since(start).Microseconds()) / zookeeperPairs, nil
	}
	c := comparison{name: "zookeeper, pair", unit: "µs a pair"}
	for _, name := range []string{zookeeperFloor, ours, zookeeperLock} {
		c.contestants = append(c.contestants, zookeeperContestant(name, run))
	}
	c.targets = []target{{contestant: ours, over: zookeeperFloor, atMost: 1.2}, {contestant: ours, over: zookeeperLock, atMost: 1}}
	return c
}

// zookeeperMany is 64 callers of one process on a name each.
func zookeeperMany() comparison {
	const callers = 64
	run := func(pair func(string) error) (float64, error) {
		counts, errs := make([]float64, callers), make([]error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			name := "many/" + strconv.Itoa(i)
			wg.Go(func() {
				for end := time.Now().Add(contest); time.Now().Before(end); counts[i]++ {
					if errs[i] = pair(name); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		return sum(counts) / contest.Seconds(), errors.Join(errs...)
	}
	c := comparison{name: "zookeeper, 64 callers on 64 names", unit: "pairs a second"}
	for _, name := range []string{zookeeperFloor, ours, zookeeperLock} {
		c.contestants = append(c.contestants, zookeeperContestant(name, run))
	}
	c.targets = []target{{contestant: ours, over: zookeeperFloor, atLeast: 0.9}, {contestant: ours, over: zookeeperLock, atLeast: 1.5}}
	return c
}

// zookeeperContended is one name that many callers of several processes want.
func zookeeperContended(processes, callers int) comparison {
	c := comparison{name: fmt.Sprintf("zookeeper, one name, %d processes x %d callers", processes, callers), unit: "hand-overs a second"}
	names := []string{zookeeperLock, oursNoHandOff}
	if callers > 1 {
		names = append(names, ours)
	}
	for _, name := range names {
		c.contestants = append(c.contestants, contestant{name, func() (float64, map[string]float64, error) {
			s, err := zookeeperServer()
			if err != nil {
				return 0, nil, err
			}
			return contend("zookeeper:"+name, s.Addr(), processes, callers)
		}})
	}
	c.targets = []target{{contestant: oursNoHandOff, more: jain, atLeast: 0.99}}
	if callers == 1 {
		c.targets = append(c.targets, target{contestant: oursNoHandOff, over: zookeeperLock, atLeast: 1.3})
	}
	return c
}

// zookeeperPairOf makes one way to lock and unlock a name.
func zookeeperPairOf(name, addr string) (pair func(name string) error, done func(), err error) {
	ctx := context.Background()
	if name == ours || name == oursNoHandOff {
		locks, openErr := holdfast.Open(ctx, "zookeeper://"+addr, &holdfast.Options{NoLocalHandOver: name == oursNoHandOff})
		if openErr != nil {
			return nil, nil, openErr
		}
		return holdfastNamed(locks), func() { closeClient(locks) }, nil
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

func holdfastNamed(locks *holdfast.Client) func(string) error {
	ctx := context.Background()
	return func(name string) error {
		lease, err := locks.Acquire(ctx, name, nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}
