package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// rueidisLink is a Link over a client of rueidis, which repeats by itself only
// commands that are marked as read-only; none of ours is.
type rueidisLink struct {
	client rueidis.Client
	own    bool // made from a URL
	dials  atomic.Uint64
	turns  atomic.Uint64 // dials, and ends of connections
	stood  atomic.Uint64 // the turns before a call that was answered
}

// countDials makes the client dial in a way that is counted.
func (l *rueidisLink) countDials(option *rueidis.ClientOption) {
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		l.dials.Add(1)
		l.turns.Add(1)
		conn, err := dialRueidis(ctx, addr, d, cfg)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { l.turns.Add(1) })}, nil
	}
}

func dialRueidis(ctx context.Context, addr string, d *net.Dialer, cfg *tls.Config) (net.Conn, error) {
	if cfg == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{NetDialer: d, Config: cfg}).DialContext(ctx, "tcp", addr)
}

// countedConn tells when it is closed.
type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// Prompt: while it dials, or another call does, the client hears of no ctx. So the
// connection must be known to stand: a call was answered on it, and none was dialed or
// has ended since. (One that ends between this and the call may still cost the call a
// dial.) A cluster has many connections, of which some may not have been dialed yet.
//
// Afterwards a ctx that only a deadline ends is seen to by the connection; any other makes
// the client answer from goroutines of its own, and return when it ends. It must not see
// both, or it reads on the caller's goroutine until the deadline.
func (l *rueidisLink) Prompt(ctx context.Context) (context.Context, bool) {
	if !l.own || l.stood.Load() != l.turns.Load() || l.Mode() == Cluster {
		return nil, false
	}
	if end, _ := ctx.Deadline(); driver.DeadlineOnly(ctx) && time.Until(end) > hasty {
		return ctx, true
	}
	return endless{ctx}, true
}

// endless hides the deadline.
type endless struct{ context.Context }

func (endless) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// The kinds of subscriptions, as the server calls them.
const (
	plainKind   = "subscribe"
	shardedKind = "ssubscribe"
)

func (l *rueidisLink) Do(ctx context.Context, commands ...Command) []Reply {
	turns := l.turns.Load()
	replies := doRueidis(ctx, l.client, commands)
	if replies[0].Err == nil && l.stood.Load() != turns { // a refusal may be of a dial
		l.stood.Store(turns)
	}
	return replies
}

func doRueidis(ctx context.Context, client rueidis.CommandClient, commands []Command) []Reply {
	b := client.B()
	if len(commands) == 1 {
		return []Reply{resultReply(client.Do(ctx, completed(b, &commands[0])))}
	}
	all := make(rueidis.Commands, len(commands))
	for i := range commands {
		all[i] = completed(b, &commands[i])
	}
	replies := make([]Reply, len(commands))
	for i, res := range client.DoMulti(ctx, all...) {
		replies[i] = resultReply(res)
	}
	return replies
}

func completed(b rueidis.Builder, c *Command) rueidis.Completed {
	if c.Key == 0 {
		return b.Arbitrary(c.Words...).Build()
	}
	return b.Arbitrary(c.Words[:c.Key]...).Keys(c.Words[c.Key]).Args(c.Words[c.Key+1:]...).Build()
}

func resultReply(res rueidis.RedisResult) Reply {
	m, err := res.ToMessage()
	if err != nil {
		return errorReply(err)
	}
	return messageReply(&m)
}

func errorReply(err error) Reply {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	switch {
	case !ok:
		return Reply{Err: err}
	case e.IsNil():
		return Reply{Null: true}
	}
	return Reply{Err: ServerError(e.Error())}
}

func messageReply(m *rueidis.RedisMessage) (r Reply) {
	switch {
	case m.IsInt64():
		r.Int, _ = m.ToInt64() // it is one
	case m.IsArray():
		all, _ := m.ToArray()
		r.List = make([]Reply, len(all))
		for i := range all {
			r.List[i] = messageReply(&all[i])
		}
	case m.IsMap():
		all, _ := m.ToMap()
		for key := range all {
			value := all[key]
			r.List = append(r.List, Reply{Text: key}, messageReply(&value))
		}
	default:
		text, err := m.ToString()
		if err != nil {
			return errorReply(err)
		}
		r.Text = text
	}
	return r
}

func (l *rueidisLink) Masters(ctx context.Context) ([]Node, error) {
	if l.Mode() != Cluster {
		return []Node{&rueidisNode{l.client, ""}}, nil
	}
	reply := l.Do(ctx, Command{Words: []string{"CLUSTER", "SLOTS"}})[0]
	if reply.Err != nil {
		return nil, reply.Err
	}
	known, masters, seen := l.client.Nodes(), []Node{}, map[string]bool{}
	for _, r := range reply.List { // from, to, master, replicas
		if len(r.List) < 3 || len(r.List[2].List) < 2 {
			continue
		}
		addr := net.JoinHostPort(r.List[2].List[0].Text, strconv.FormatInt(r.List[2].List[1].Int, 10))
		if seen[addr] {
			continue
		}
		seen[addr] = true
		client := known[addr]
		if client == nil {
			return nil, failure(driver.Unavailable, "the cluster's node "+addr+" is not known yet")
		}
		masters = append(masters, &rueidisNode{client, addr})
	}
	return masters, nil
}

// rueidisNode is one node that the client knows.
type rueidisNode struct {
	client rueidis.Client
	addr   string
}

func (n *rueidisNode) Do(ctx context.Context, commands ...Command) []Reply {
	return doRueidis(ctx, n.client, commands)
}

func (n *rueidisNode) Addr() string { return n.addr }

// Subscribe hears on a connection of its own, but in a cluster: one that hears has its
// answers read by a goroutine of its own for ever, which makes each call slower.
func (l *rueidisLink) Subscribe(ctx context.Context, channel string, sharded bool, ready func(), heard func(string)) error {
	if sharded || l.Mode() == Cluster {
		return l.subscribe(ctx, channel, sharded, ready, heard)
	}
	dedicated, release := l.client.Dedicate()
	defer release()
	ended := dedicated.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { heard(m.Message) },
		OnSubscription: func(sub rueidis.PubSubSubscription) {
			if sub.Kind == plainKind {
				ready()
			}
		},
	})
	if err := dedicated.Do(ctx, dedicated.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *rueidisLink) subscribe(ctx context.Context, channel string, sharded bool, ready func(), heard func(string)) error {
	subscribe, kind := l.client.B().Subscribe().Channel(channel).Build(), plainKind
	if sharded {
		subscribe, kind = l.client.B().Ssubscribe().Channel(channel).Build(), shardedKind
	}
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		if sub.Kind == kind {
			ready()
		}
	})
	err := l.client.Receive(hooked, subscribe, func(m rueidis.PubSubMessage) { heard(m.Message) })
	if ctx.Err() != nil && !l.own { // the client goes on without us, as it was
		l.unsubscribe(channel, sharded)
	}
	return err
}

// DoApart uses a connection of its own, and in a cluster the node that the first
// command's slot is thought to be on: it follows no redirection.
func (l *rueidisLink) DoApart(ctx context.Context, commands ...Command) (replies []Reply) {
	dedicated, release := l.client.Dedicate()
	defer release()
	return doRueidis(ctx, dedicated, commands)
}

// unsubscribe ends a subscription; if it fails, the connection is gone. A ctx
// that ends would end the connection, and with it others' calls.
func (l *rueidisLink) unsubscribe(channel string, sharded bool) {
	b := l.client.B()
	cmd := b.Unsubscribe().Channel(channel).Build()
	if sharded {
		cmd = b.Sunsubscribe().Channel(channel).Build()
	}
	_ = l.client.Do(context.Background(), cmd).Error()
}

func (l *rueidisLink) Mode() Mode {
	switch l.client.Mode() {
	case rueidis.ClientModeCluster:
		return Cluster
	case rueidis.ClientModeSentinel:
		return Sentinel
	case rueidis.ClientModeStandalone:
	}
	return Single
}

func (l *rueidisLink) Dials() (count uint64, told bool) {
	return l.dials.Load(), l.own
}

func (l *rueidisLink) Close() {
	if l.own {
		l.client.Close()
	}
}
