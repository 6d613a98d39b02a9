package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/internal/redistest"
	_ "github.com/holdfast-go/holdfast/redislock" // the store under test
)

// The contestants on Redis.
const (
	redisFloor    = "SET NX PX, and a script that compares and deletes (rueidis)"
	redisGoFloor  = "the same through go-redis"
	redisBSM      = "bsm/redislock"
	redisRedsync  = "go-redsync/redsync"
	redisRueidis  = "rueidislock"
	redisRueidis2 = "rueidislock, NoLoopTracking"
	redisQueue    = "BLPOP and LPUSH (rueidis)"
)

const serverEach = "µs of the server a turn"

const compareAndDelete = `if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) end return 0`

// startRedis starts the server with the first contestant that needs it.
var startRedis = sync.OnceValues(func() (string, error) {
	s, err := redistest.Start(redistest.Default)
	if err != nil {
		return "", err
	}
	redisStarted = s
	return s.Addr(), nil
})

var redisStarted *redistest.Server

func stopRedis() {
	if redisStarted != nil {
		redisStarted.Remove()
	}
}

// redisCommands is how many scripts the server has been sent: what they do inside
// is one command, which the total of the server's own statistics does not see.
func redisCommands(addr string) (float64, error) {
	return redisInfo(addr, "commandstats", "cmdstat_evalsha:calls=")
}

// redisInfo is the sum of what the server says of itself after each of these words.
func redisInfo(addr, section string, words ...string) (total float64, err error) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("INFO " + section + "\r\nQUIT\r\n")); err != nil {
		return 0, err
	}
	found := 0
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		for _, word := range words {
			if text, ok := strings.CutPrefix(lines.Text(), word); ok {
				text, _, _ = strings.Cut(text, ",")
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, err
				}
				total, found = total+n, found+1
			}
		}
	}
	if found < len(words) {
		return 0, errors.New("redis-server does not tell " + strings.Join(words, ", "))
	}
	return total, nil
}

var redis = network{store: "redis", pairs: 5000, start: startRedis, pair: redisPairOf}

func redisComparisons() []comparison {
	peers := []string{redisBSM, redisRedsync, redisRueidis, redisRueidis2}
	pair := redis.uncontended(append([]string{redisFloor, redisGoFloor, ours, oursCancellable}, peers...)...)
	pair.targets = []target{
		{contestant: ours, over: redisFloor, atMost: 1.2}, {contestant: ours, over: redisBSM, atMost: 1}, {contestant: ours, over: redisRueidis2, atMost: 1},
	}
	many := redis.many(append([]string{redisFloor, redisGoFloor, ours}, peers...)...)
	many.targets = []target{
		{contestant: ours, over: redisFloor, atLeast: 0.9}, {contestant: ours, over: redisBSM, atLeast: 1.5}, {contestant: ours, over: redisRueidis2, atLeast: 1.5},
	}
	return []comparison{pair, many, redisContended(16, 1), redisContended(4, 4), redisQueues(), redisHeld()}
}

// redisContended is one name that many callers of several processes want.
func redisContended(processes, callers int) comparison {
	c := comparison{name: fmt.Sprintf("redis, one name, %d processes x %d callers", processes, callers), unit: "hand-overs a second"}
	names := []string{redisQueue, oursNoHandOff, redisRueidis2, redisBSM}
	if callers > 1 {
		names = []string{redisQueue, oursNoHandOff, ours, redisRueidis2, redisBSM}
	}
	for _, name := range names {
		c.contestants = append(c.contestants, contestant{name, func() (float64, map[string]float64, error) {
			return redisContest("redis:"+name, processes, callers)
		}})
	}
	c.targets = []target{
		{contestant: oursNoHandOff, over: redisQueue, atLeast: 0.6},
		{contestant: oursNoHandOff, more: jain, atLeast: 0.99},
		{contestant: oursNoHandOff, over: redisRueidis2, atLeast: 2.4},
	}
	return c
}

// redisQueues is one name that few or many clients wait for, each by itself.
func redisQueues() comparison {
	const processes = 4
	few, many := "holdfast, 16 clients", "holdfast, 1,000 clients"
	c := comparison{name: "redis, one name, many clients that wait", unit: "hand-overs a second"}
	add := func(name string, clients int) {
		c.contestants = append(c.contestants, contestant{name, func() (float64, map[string]float64, error) {
			figure, more, err := redisContest(each+"redis:"+oursNoHandOff, processes, clients/processes)
			delete(more, cpuEach) // they count the warming up too
			delete(more, serverEach)
			return figure, more, err
		}})
	}
	add(few, 16)
	add(many, 1000)
	c.targets = []target{{contestant: many, over: few, atLeast: 1 / 1.5}}
	return c
}

// redisContest is one contest, and what of it is the server's work.
func redisContest(kind string, processes, callers int) (float64, map[string]float64, error) {
	addr, err := startRedis()
	if err != nil {
		return 0, nil, err
	}
	before, err := redisInfo(addr, "cpu", "used_cpu_user:", "used_cpu_sys:")
	if err != nil {
		return 0, nil, err
	}
	figure, more, err := contend(kind, addr, processes, callers)
	if err != nil {
		return 0, nil, err
	}
	after, err := redisInfo(addr, "cpu", "used_cpu_user:", "used_cpu_sys:")
	more[serverEach] = (after - before) * 1e6 / (figure * contest.Seconds())
	return figure, more, err
}

// redisPairOf makes one way to lock and unlock a name.
func redisPairOf(name, addr string) (pair func(name string) error, done func(), err error) {
	ctx := context.Background()
	switch name {
	case redisFloor:
		return rueidisFloor(addr)
	case redisQueue:
		return blpopQueue(addr)
	case ours, oursNoHandOff, oursCancellable:
		return holdfastAt(name, "redis://"+addr)
	case redisRueidis, redisRueidis2:
		return rueidislockPair(addr, name == redisRueidis2)
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr})
	done = func() { _ = client.Close() }
	switch name {
	case redisGoFloor:
		script := goredis.NewScript(compareAndDelete)
		pair = func(name string) error {
			if err := client.SetArgs(ctx, name, "owner", goredis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
				return err
			}
			return script.Run(ctx, client, []string{name}, "owner").Err()
		}
	case redisBSM:
		locker := bsm.New(client)
		pair = func(name string) error {
			lock, err := locker.Obtain(ctx, name, 30*time.Second, &bsm.Options{RetryStrategy: bsm.LinearBackoff(time.Millisecond)})
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		}
	case redisRedsync:
		rs := redsync.New(redsyncredis.NewPool(client))
		pair = func(name string) error {
			m := rs.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(100000), redsync.WithRetryDelay(time.Millisecond))
			if err := m.Lock(); err != nil {
				return err
			}
			_, err := m.Unlock()
			return err
		}
	}
	return pair, done, nil
}

func rueidisFloor(addr string) (func(string) error, func(), error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	ctx, script := context.Background(), rueidis.NewLuaScript(compareAndDelete)
	return func(name string) error {
		if err := client.Do(ctx, client.B().Set().Key(name).Value("owner").Nx().PxMilliseconds(30000).Build()).Error(); err != nil {
			return err
		}
		return script.Exec(ctx, client, []string{name}, []string{"owner"}).Error()
	}, client.Close, nil
}

func blpopQueue(addr string) (func(string) error, func(), error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	// One token in the list; the first process puts it there.
	made, err := client.Do(ctx, client.B().Setnx().Key("blpop/made").Value("1").Build()).AsInt64()
	if err == nil && made == 1 {
		err = client.Do(ctx, client.B().Lpush().Key("blpop").Element("token").Build()).Error()
	}
	return func(string) error {
		if popErr := client.Do(ctx, client.B().Blpop().Key("blpop").Timeout(0).Build()).Error(); popErr != nil {
			return popErr
		}
		return client.Do(ctx, client.B().Lpush().Key("blpop").Element("token").Build()).Error()
	}, client.Close, err
}

func rueidislockPair(addr string, noLoop bool) (func(string) error, func(), error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		KeyMajority:  1, KeyValidity: 30 * time.Second, NoLoopTracking: noLoop,
	})
	if err != nil {
		return nil, nil, err
	}
	return func(name string) error {
		for { // it now and then misses the wake-up of its own release, and would wait for ever
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			_, cancel, err := locker.WithContext(ctx, name)
			if err == nil {
				cancel()
			}
			stop()
			if !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
		}
	}, locker.Close, nil
}
