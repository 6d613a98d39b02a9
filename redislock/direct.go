package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// directLink is a Link to one server, over connections of our own;
// docs/decisions says why.
type directLink struct {
	option *rueidis.ClientOption
	dials  atomic.Uint64
	now    atomic.Pointer[conn] // the present connection, which may have ended
	life   context.Context
	end    context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	dialing *dialing
	apart   []*conn // idle ones
	closed  bool
}

// dialing is a dial that all wait for who need it.
type dialing struct {
	done chan struct{}
	conn *conn
	err  error
}

// idleApart is how many connections of DoApart are kept.
const idleApart = 4

var errClosed = errors.New("redis: the store is closed")

func newDirectLink(option *rueidis.ClientOption) *directLink {
	l := &directLink{option: option}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

func (l *directLink) Do(ctx context.Context, commands ...Command) []Reply {
	c := l.now.Load()
	if c == nil || !c.usable() {
		var err error
		if c, err = l.connection(ctx); err != nil {
			return failed(len(commands), err)
		}
	}
	return c.exchange(ctx, commands)
}

// Prompt: Do returns when ctx ends, whatever is on its way.
func (l *directLink) Prompt(ctx context.Context) (context.Context, bool) { return ctx, true }

// connection waits for a connection.
func (l *directLink) connection(ctx context.Context) (*conn, error) {
	l.mu.Lock()
	if c := l.now.Load(); c != nil && c.usable() {
		l.mu.Unlock()
		return c, nil
	}
	if l.closed {
		l.mu.Unlock()
		return nil, &driver.Failure{Kind: driver.Unavailable, Err: errClosed}
	}
	d := l.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		l.dialing = d
		l.tasks.Go(func() { l.dial(d) })
	}
	l.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, l.dialError(ctx.Err())
	}
}

func (l *directLink) dial(d *dialing) {
	l.dials.Add(1)
	d.conn, d.err = connect(l.life, l.option, &l.tasks)
	if d.err != nil {
		d.err = l.dialError(d.err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialing = nil
	switch {
	case d.err != nil:
	case l.closed:
		d.conn.close(errClosed)
	default:
		l.now.Store(d.conn)
	}
	close(d.done)
}

// dialError says that nothing was sent, whatever the error.
func (l *directLink) dialError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return notSent(err)
	case classify(err) == driver.Indeterminate:
		return &driver.Failure{Kind: driver.Unavailable, Err: fmt.Errorf("redis: dialing %s: %w", l.option.InitAddress[0], err)}
	}
	return err
}

// enter lets a call use connections of its own. Closing the link ends its ctx, and waits
// until it leaves.
func (l *directLink) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, &driver.Failure{Kind: driver.Unavailable, Err: errClosed}
	}
	l.tasks.Add(1)
	ctx, end := context.WithCancel(ctx)
	stop := context.AfterFunc(l.life, end)
	return ctx, func() {
		stop()
		end()
		l.tasks.Done()
	}, nil
}

// DoApart takes a connection that nobody else uses.
func (l *directLink) DoApart(ctx context.Context, commands ...Command) []Reply {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return failed(len(commands), err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, stalled)
	defer cancel()
	c, err := l.takeApart(ctx)
	if err != nil {
		return failed(len(commands), l.dialError(err))
	}
	replies := c.exchange(ctx, commands)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.idle() && len(l.apart) < idleApart && !l.closed {
		l.apart = append(l.apart, c)
	} else {
		c.close(errClosed)
	}
	return replies
}

func (l *directLink) takeApart(ctx context.Context) (*conn, error) {
	for c := l.kept(); c != nil; c = l.kept() {
		if c.usable() {
			return c, nil
		}
	}
	return connect(ctx, l.option, &l.tasks)
}

// kept takes one of the idle connections, if there is any.
func (l *directLink) kept() (c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := len(l.apart) - 1; last >= 0 {
		c, l.apart = l.apart[last], l.apart[:last]
	}
	return c
}

// idle tells whether the connection lives, and no answer is to come.
func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && c.first == nil
}

func (l *directLink) Masters(context.Context) ([]Node, error) { return []Node{l}, nil }

func (l *directLink) Addr() string { return "" }

// Subscribe hears on a connection of its own.
func (l *directLink) Subscribe(ctx context.Context, channel string, _ bool, ready func(), heard func(string)) error {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c, err := connect(ctx, l.option, &l.tasks)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.close(ctx.Err()) })
	defer stop()
	err = c.listen(channel, ready, heard)
	c.close(err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (l *directLink) Mode() Mode { return Single }

func (l *directLink) Dials() (count uint64, told bool) { return l.dials.Load(), true }

func (l *directLink) Close() {
	l.mu.Lock()
	l.closed = true
	apart := l.apart
	l.apart = nil
	l.mu.Unlock()
	l.end()
	if c := l.now.Load(); c != nil {
		c.close(errClosed)
	}
	for _, c := range apart {
		c.close(errClosed)
	}
	l.tasks.Wait()
}
