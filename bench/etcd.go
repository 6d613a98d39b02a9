package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/etcdlock" // the store under test
	"github.com/holdfast-go/holdfast/internal/etcdtest"
)

// The contestants on etcd.
const (
	etcdFloor = "a transaction that puts, and one that deletes (clientv3)"
	etcdMutex = "etcd's concurrency.Mutex"
	etcdQueue = "keys in order of creation, and one watch of all of them (clientv3)"
)

// etcdPairs is how many pairs one caller does in a round.
const etcdPairs = 2000

// etcdServer is started with the first contestant that needs it. Its data is in
// memory, so that the disk does not hide what the contestants cost.
var etcdServer struct {
	once    sync.Once
	cluster *etcdtest.Cluster
	err     error
}

func startEtcd() (string, error) {
	s := &etcdServer
	s.once.Do(func() {
		s.cluster, s.err = etcdtest.Start(etcdtest.Default, 1, "--heartbeat-interval", "100", "--election-timeout", "1000")
	})
	if s.err != nil {
		return "", s.err
	}
	return s.cluster.Nodes[0].Addr, nil
}

func stopEtcd() {
	if etcdServer.cluster != nil {
		etcdServer.cluster.Remove()
	}
}

// etcdContestant times one way to lock.
func etcdContestant(name string, run func(pair func(name string) error) (float64, error)) contestant {
	return contestant{name, func() (float64, map[string]float64, error) {
		addr, err := startEtcd()
		if err != nil {
			return 0, nil, err
		}
		pair, done, err := etcdPairOf(name, addr)
		if err != nil {
			return 0, nil, err
		}
		defer done()
		figure, err := run(pair)
		return figure, nil, err
	}}
}

// etcdPair is one caller who locks and unlocks one name.
func etcdPair() comparison {
	run := func(pair func(string) error) (float64, error) {
		start := time.Now()
		for range etcdPairs {
			if err := pair("pair"); err != nil {
				return 0, err
			}
		}
		return float64(time.Since(start).Microseconds()) / etcdPairs, nil
	}
	c := comparison{name: "etcd, pair", unit: "µs a pair"}
	for _, name := range []string{etcdFloor, ours, etcdMutex} {
		c.contestants = append(c.contestants, etcdContestant(name, run))
	}
	c.targets = []target{{contestant: ours, over: etcdFloor, atMost: 1.2}}
	return c
}

// etcdMany is 64 callers of one process on a name each.
func etcdMany() comparison {
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
	c := comparison{name: "etcd, 64 callers on 64 names", unit: "pairs a second"}
	for _, name := range []string{etcdFloor, ours, etcdMutex} {
		c.contestants = append(c.contestants, etcdContestant(name, run))
	}
	c.targets = []target{{contestant: ours, over: etcdFloor, atLeast: 0.9}, {contestant: ours, over: etcdMutex, atLeast: 3}}
	return c
}

// etcdContended is one name that many callers of several processes want.
func etcdContended(processes, callers int) comparison {
	c := comparison{name: fmt.Sprintf("etcd, one name, %d processes x %d callers", processes, callers), unit: "hand-overs a second"}
	names := []string{etcdQueue, oursNoHandOff, etcdMutex}
	if callers > 1 {
		names = []string{oursNoHandOff, ours, etcdMutex}
	}
	for _, name := range names {
		c.contestants = append(c.contestants, contestant{name, func() (float64, map[string]float64, error) {
			addr, err := startEtcd()
			if err != nil {
				return 0, nil, err
			}
			return contend("etcd:"+name, addr, processes, callers)
		}})
	}
	c.targets = []target{{contestant: oursNoHandOff, over: etcdMutex, atLeast: 2}, {contestant: oursNoHandOff, more: jain, atLeast: 0.99}}
	if callers == 1 {
		c.targets = append(c.targets, target{contestant: oursNoHandOff, over: etcdQueue, atLeast: 0.95})
	}
	return c
}

// etcdPairOf makes one way to lock and unlock a name.
func etcdPairOf(name, addr string) (pair func(name string) error, done func(), err error) {
	ctx := context.Background()
	if name == ours || name == oursNoHandOff {
		locks, openErr := holdfast.Open(ctx, "etcd://"+addr, &holdfast.Options{NoLocalHandOver: name == oursNoHandOff})
		if openErr != nil {
			return nil, nil, openErr
		}
		return func(name string) error {
			lease, acquireErr := locks.Acquire(ctx, name, nil)
			if acquireErr != nil {
				return acquireErr
			}
			return lease.Release(ctx)
		}, func() { closeClient(locks) }, nil
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	done = func() {
		_ = session.Close()
		_ = client.Close()
	}
	switch name {
	case etcdFloor:
		pair = etcdFloorPair(ctx, client, session.Lease())
	case etcdQueue:
		pair, err = etcdQueuePair(ctx, client, session.Lease())
	default:
		pair = func(name string) error {
			m := concurrency.NewMutex(session, name)
			if lockErr := m.Lock(ctx); lockErr != nil {
				return lockErr
			}
			return m.Unlock(ctx)
		}
	}
	return pair, done, err
}

func etcdFloorPair(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) func(string) error {
	return func(name string) error {
		taken, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
			Then(clientv3.OpPut(name, "owner", clientv3.WithLease(lease))).Commit()
		if err != nil || !taken.Succeeded {
			return errors.Join(err, errors.New("not taken"))
		}
		_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", taken.Header.Revision)).
			Then(clientv3.OpDelete(name)).Commit()
		return err
	}
}

// etcdQueuePair is the simplest fair queue: every process watches all keys of the
// name, and the oldest holds.
func etcdQueuePair(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) (func(string) error, error) {
	const prefix = "queue/"
	var mu sync.Mutex
	keys, changed := map[string]int64{}, make(chan struct{}, 1)
	events := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-events
	present, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range present.Kvs {
		keys[string(kv.Key)] = kv.CreateRevision
	}
	go func() {
		for answer := range events {
			mu.Lock()
			for _, e := range answer.Events {
				switch {
				case e.Type == clientv3.EventTypeDelete:
					delete(keys, string(e.Kv.Key))
				case e.Kv.CreateRevision > present.Header.Revision:
					keys[string(e.Kv.Key)] = e.Kv.CreateRevision
				}
			}
			mu.Unlock()
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	first := func(key string) bool {
		mu.Lock()
		defer mu.Unlock()
		mine, there := keys[key]
		for _, revision := range keys {
			if revision < mine {
				return false
			}
		}
		return there
	}
	key := prefix + strconv.FormatInt(int64(lease), 16)
	return func(string) error {
		if _, err := client.Put(ctx, key, "owner", clientv3.WithLease(lease)); err != nil {
			return err
		}
		for !first(key) {
			<-changed
		}
		_, err := client.Delete(ctx, key)
		return err
	}, nil
}
