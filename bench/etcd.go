package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	_ "github.com/holdfast-go/holdfast/etcdlock" // the store under test
	"github.com/holdfast-go/holdfast/internal/etcdtest"
)

// The contestants on etcd.
const (
	etcdFloor   = "a transaction that puts, and one that deletes (clientv3)"
	etcdMutex   = "etcd's concurrency.Mutex"
	etcdQueue   = "keys in order of creation, and one watch of all of them (clientv3)"
	etcdBatches = "64 names to a transaction, by one caller alone (clientv3)"
)

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

var etcd = network{store: "etcd", pairs: 2000, start: startEtcd, pair: etcdPairOf}

func etcdComparisons() []comparison {
	pair := etcd.uncontended(etcdFloor, ours, etcdMutex)
	pair.targets = []target{{contestant: ours, over: etcdFloor, atMost: 1.2}}
	many := etcd.many(etcdFloor, ours, etcdMutex)
	many.contestants = append(many.contestants, contestant{etcdBatches, etcdBatched})
	many.targets = []target{{contestant: ours, over: etcdFloor, atLeast: 0.9}, {contestant: ours, over: etcdMutex, atLeast: 3}}
	sixteen := etcd.contended(16, 1, etcdQueue, oursNoHandOff, etcdMutex)
	sixteen.targets = append(sixteen.targets,
		target{contestant: oursNoHandOff, over: etcdMutex, atLeast: 2}, target{contestant: oursNoHandOff, over: etcdQueue, atLeast: 0.95})
	four := etcd.contended(4, 4, oursNoHandOff, ours, etcdMutex)
	four.targets = append(four.targets, target{contestant: oursNoHandOff, over: etcdMutex, atLeast: 2})
	return []comparison{pair, many, sixteen, four}
}

// etcdPairOf makes one way to lock and unlock a name.
func etcdPairOf(name, addr string) (pair func(name string) error, done func(), err error) {
	ctx := context.Background()
	if name == ours || name == oursNoHandOff {
		return holdfastAt(name, "etcd://"+addr)
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

// etcdBatched is the least that taking 64 names and giving them back can be: by one caller
// alone, who never waits for another.
func etcdBatched() (float64, map[string]float64, error) {
	addr, err := startEtcd()
	if err != nil {
		return 0, nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return 0, nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is lost
	lease, err := client.Grant(context.Background(), 30)
	if err != nil {
		return 0, nil, err
	}
	pairs := 0
	for end := time.Now().Add(contest); time.Now().Before(end); pairs += manyCallers {
		var take, giveBack []clientv3.Op
		for i := range manyCallers {
			key := "batch/" + strconv.Itoa(i)
			take = append(take, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
				[]clientv3.Op{clientv3.OpPut(key, "owner", clientv3.WithLease(lease.ID))}, nil))
			giveBack = append(giveBack, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", "owner")},
				[]clientv3.Op{clientv3.OpDelete(key)}, nil))
		}
		for _, ops := range [][]clientv3.Op{take, giveBack} {
			if _, err := client.Txn(context.Background()).Then(ops...).Commit(); err != nil {
				return 0, nil, err
			}
		}
	}
	return float64(pairs) / contest.Seconds(), nil, nil
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
