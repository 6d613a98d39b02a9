package goredislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock"
)

// Options are those of package redislock.
type Options = redislock.Options

// New makes a store over a client, which stays open when the store is closed:
// a *redis.Client, also of Sentinel, or a *redis.ClusterClient. It asks the
// servers for their settings. opts may be nil.
func New(client redis.UniversalClient, opts *Options) (driver.Store, error) {
	return open(&link{client: client}, opts)
}

func open(l *link, opts *Options) (driver.Store, error) {
	switch c := l.client.(type) {
	case *redis.ClusterClient:
		l.cluster, l.mode = c, redislock.Cluster
	case *redis.Client:
		if c.Options().Addr == failoverAddr {
			l.mode = redislock.Sentinel
		}
	default:
		return nil, &driver.Failure{Kind: driver.Unsupported, Err: fmt.Errorf("redis: a client of type %T cannot keep locks", c)}
	}
	return redislock.Over(l, opts)
}

// failoverAddr is what a client of Sentinel has for an address.
const failoverAddr = "FailoverClient"

// link is a redislock.Link over a client of go-redis.
type link struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil but in a cluster
	mode    redislock.Mode
	own     bool // made for this store alone
}

// once is a command that the client does not repeat.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Clone keeps what it is.
func (c once) Clone() redis.Cmder { return once{c.Cmd.Clone().(*redis.Cmd)} } //nolint:errcheck // it clones its own type

func commandOf(ctx context.Context, c *redislock.Command) once {
	args := make([]any, len(c.Words))
	for i, word := range c.Words {
		args[i] = word
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(int8(c.Key)) //nolint:gosec // at most 3
	return once{cmd}
}

func (l *link) Do(ctx context.Context, commands ...redislock.Command) []redislock.Reply {
	return do(ctx, l.client, commands)
}

// doer is a client of any kind.
type doer interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func do(ctx context.Context, client doer, commands []redislock.Command) []redislock.Reply {
	if len(commands) == 1 {
		cmd := commandOf(ctx, &commands[0])
		_ = client.Process(ctx, cmd) // the command has it too
		return []redislock.Reply{replyOf(cmd)}
	}
	pipe, all := client.Pipeline(), make([]once, len(commands))
	for i := range commands {
		all[i] = commandOf(ctx, &commands[i])
		_ = pipe.Process(ctx, all[i]) // it only queues
	}
	_, _ = pipe.Exec(ctx) // the commands have it too
	replies := make([]redislock.Reply, len(commands))
	for i, cmd := range all {
		replies[i] = replyOf(cmd)
	}
	return replies
}

// DoApart is Do on one node: a pipeline has a connection to itself.
func (l *link) DoApart(ctx context.Context, commands ...redislock.Command) []redislock.Reply {
	if l.cluster == nil {
		return do(ctx, l.client, commands)
	}
	node, err := l.cluster.MasterForKey(ctx, commands[0].Words[commands[0].Key])
	if err != nil {
		replies := make([]redislock.Reply, len(commands))
		for i := range replies {
			replies[i] = errorReply(&driver.Failure{Kind: driver.Unavailable, Err: err})
		}
		return replies
	}
	replies := do(ctx, node, commands)
	if e, ok := errors.AsType[redislock.ServerError](replies[0].Err); ok && strings.HasPrefix(string(e), "MOVED ") {
		l.cluster.ReloadState(ctx)
	}
	return replies
}

func (l *link) Masters(ctx context.Context) (masters []redislock.Node, err error) {
	if l.cluster == nil {
		return []redislock.Node{node{l.client, ""}}, nil
	}
	var mu sync.Mutex
	err = l.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, node{c, c.Options().Addr})
		return nil
	})
	return masters, err
}

type node struct {
	client doer
	addr   string
}

func (n node) Do(ctx context.Context, commands ...redislock.Command) []redislock.Reply {
	return do(ctx, n.client, commands)
}

func (n node) Addr() string { return n.addr }

func (l *link) Mode() redislock.Mode { return l.mode }

func (l *link) Dials() (count uint64, told bool) { return 0, false }

func (l *link) Close() {
	if l.own {
		_ = l.client.Close() // nothing is left to be said
	}
}

// silence is how long a subscription may say nothing before it is asked
// whether it lives.
const silence = 5 * time.Second

func (l *link) Subscribe(ctx context.Context, channel string, sharded bool, ready func(), heard func(string)) error {
	var sub *redis.PubSub
	if sharded {
		sub = l.client.SSubscribe(ctx, channel)
	} else {
		sub = l.client.Subscribe(ctx, channel)
	}
	defer func() { _ = sub.Close() }()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // ends the reading
	for asked := false; ; {
		message, err := sub.ReceiveTimeout(ctx, silence)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !asked {
			asked, err = true, sub.Ping(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return serverError(err)
		}
		asked = false
		switch m := message.(type) {
		case *redis.Subscription:
			if strings.HasSuffix(m.Kind, "unsubscribe") { // the slot has moved
				return errors.New("redis: the subscription was ended")
			}
			ready()
		case *redis.Message:
			heard(m.Payload)
		}
	}
}
