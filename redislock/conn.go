package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// conn is one connection that many goroutines use at once. Whoever comes writes, and
// takes along what others have put there meanwhile. Whose answer is due reads it
// himself and passes the reading on: so a call that is alone costs no other
// goroutine.
type conn struct {
	net   net.Conn
	tasks *sync.WaitGroup

	mu          sync.Mutex
	err         error  // why it has ended
	out, spare  []byte // to be written; a second buffer to take turns with
	writing     bool
	first, last *turn     // the calls whose answers are to come, in order
	readBy      time.Time // the time limit that is set
	wrote       time.Time // when it was used last

	// Of who reads.
	in    []byte
	start int // of what is not read yet
	scanner
}

// turn is one call.
type turn struct {
	next    *turn
	left    int           // answers to come
	lead    chan struct{} // filled when it is his to read, or the connection has ended
	leads   bool          // under conn.mu, as are these
	reading bool
	cut     bool // his ctx has ended while he read
	gone    bool // he has left: his answers are to be dropped
}

var turns = sync.Pool{New: func() any { return &turn{lead: make(chan struct{}, 1)} }}

// hasty is for how short a time a connection is not given up with a call that ran
// out of it.
const hasty = time.Second

// errSilent is of those whose connection was given up for another call.
var errSilent = errors.New("redis: no answer in time: the connection was given up")

// stalled is how long nothing may come, or go, that nobody waits for any more, or who
// does waits for ever: else a server that has gone without a word would be waited for by all.
const stalled = 5 * time.Second

// connect dials and logs in. An error is surely not of anything else that was sent.
func connect(ctx context.Context, option *rueidis.ClientOption, tasks *sync.WaitGroup) (*conn, error) {
	nc, err := dialDirect(ctx, option, tasks)
	if err != nil {
		return nil, err
	}
	c := &conn{net: nc, tasks: tasks, in: make([]byte, 0, bufferSize/4)}
	ctx, cancel := context.WithTimeout(ctx, option.ConnWriteTimeout)
	defer cancel()
	for _, login := range logins(option) {
		if err = c.exchange(ctx, []Command{login})[0].Err; err != nil {
			c.close(err)
			return nil, discreet(err)
		}
	}
	return c, nil
}

// dialDirect makes a connection, within its time TLS too, that is spoken over one that does
// not wait.
func dialDirect(ctx context.Context, option *rueidis.ClientOption, tasks *sync.WaitGroup) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, option.Dialer.Timeout)
	defer cancel()
	addr, config := option.InitAddress[0], option.TLSConfig
	nc, err := dialRueidis(ctx, addr, &option.Dialer, nil)
	if err != nil {
		return nil, err
	}
	if nc = quietly(nc, tasks); config == nil {
		return nc, nil
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	over := tls.Client(nc, config)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return over, nil
}

// logins are sent before all else, of which a server that knows nobody refuses much in
// words that do not say why.
func logins(option *rueidis.ClientOption) (commands []Command) {
	switch {
	case option.Username != "": // also without a password: nobody is let in as somebody else
		commands = append(commands, command("AUTH", option.Username, option.Password))
	case option.Password != "":
		commands = append(commands, command("AUTH", option.Password))
	default:
		commands = append(commands, command("PING"))
	}
	if option.SelectDB != 0 {
		commands = append(commands, command("SELECT", strconv.Itoa(option.SelectDB)))
	}
	return commands
}

// discreet leaves out what a server repeats that does not know a command: the password.
func discreet(err error) error {
	e, ok := err.(ServerError) //nolint:errorlint // an exchange gives it bare
	if !ok {
		return err
	}
	text, _, _ := strings.Cut(string(e), ", with args")
	return ServerError(text)
}

// exchange sends commands and returns their answers, or when ctx ends.
func (c *conn) exchange(ctx context.Context, commands []Command) []Reply {
	t := turns.Get().(*turn) //nolint:errcheck,forcetypeassert // nothing else is put there
	end, last := limitOf(ctx)
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return failed(len(commands), &driver.Failure{Kind: driver.Unavailable, Err: err})
	}
	first := c.push(t, commands)
	if !c.writing {
		c.write()
	}
	c.mu.Unlock()
	if !first {
		select {
		case <-t.lead:
		case <-ctx.Done():
			return failed(len(commands), c.leave(t, ctx.Err(), last))
		}
	}
	replies := make([]Reply, len(commands))
	if c.lead(ctx, t, replies, end, last) { // else others may know of the turn yet
		*t = turn{lead: t.lead}
		turns.Put(t)
	}
	return replies
}

// limitOf is until when the connection itself may wait for a call, zero if the call
// is to be interrupted when its ctx ends. last tells that the call is then the
// connection's last.
func limitOf(ctx context.Context) (end time.Time, last bool) {
	if ctx.Done() == nil {
		return time.Now().Add(stalled), true
	}
	if !driver.DeadlineOnly(ctx) {
		return time.Time{}, false
	}
	if end, _ = ctx.Deadline(); time.Until(end) <= hasty {
		return time.Time{}, false
	}
	return end, true
}

func failed(n int, err error) []Reply {
	replies := make([]Reply, n)
	fail(replies, err)
	return replies
}

func fail(replies []Reply, err error) {
	for i := range replies {
		replies[i].Err = err
	}
}

// push puts a call at the end of the line, and tells whether it is the first
// there; under mu.
func (c *conn) push(t *turn, commands []Command) (first bool) {
	for i := range commands {
		c.out = appendCommand(c.out, &commands[i])
	}
	t.left = len(commands)
	if first = c.last == nil; first {
		c.first, t.leads = t, true
	} else {
		c.last.next = t
	}
	c.last = t
	return first
}

// write sends what there is, also what others add meanwhile; under mu.
func (c *conn) write() {
	c.writing = true
	for len(c.out) > 0 && c.err == nil {
		buffer := c.out
		c.out, c.spare = c.spare[:0], nil
		c.wrote = time.Now()
		c.mu.Unlock()
		_, err := c.net.Write(buffer)
		c.mu.Lock()
		if c.spare = buffer; cap(buffer) > bufferSize {
			c.spare = nil
		}
		if err != nil {
			c.end(err)
		}
	}
	c.writing = false
}

// lead reads the answers to t, whose turn it is, and passes the reading on. over tells
// that nobody else knows of t any more.
func (c *conn) lead(ctx context.Context, t *turn, replies []Reply, end time.Time, last bool) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		fail(replies, c.err)
		return false
	}
	t.reading = true
	c.limit(end)
	c.mu.Unlock()
	if !last && ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { c.interrupt(t) })
		defer func() { over = stop() && over }()
	}
	err := c.read(t, replies)
	c.mu.Lock()
	t.reading = false
	unread := replies[len(replies)-t.left:]
	switch {
	case err == nil:
		c.pop()
		c.pass()
		return true
	case c.err != nil: // it has ended meanwhile
		fail(unread, c.err)
	case t.cut: // what is still to come is another's to read
		fail(unread, ctx.Err())
		t.gone = true
		c.pass()
	case last && errors.Is(err, os.ErrDeadlineExceeded):
		fail(unread, context.DeadlineExceeded)
		c.end(errSilent)
	default:
		fail(unread, err)
		c.end(err)
	}
	return false
}

// interrupt makes a call return that reads.
func (c *conn) interrupt(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.reading {
		t.cut = true
		c.limit(time.Unix(1, 0))
	}
}

// limit sets until when reading may take; under mu.
func (c *conn) limit(end time.Time) {
	if !end.Equal(c.readBy) {
		c.readBy = end
		_ = c.net.SetReadDeadline(end)
	}
}

// leave is for a call whose ctx has ended before its turn came.
func (c *conn) leave(t *turn, why error, last bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.gone = true
	switch {
	case c.err != nil:
	case last:
		c.end(errSilent)
	case t.leads: // it has come just now
		c.pass()
	}
	return why
}

// pop takes the first call off; pass gives the reading to the next, or lets what
// nobody waits for be read. Under mu.
func (c *conn) pop() {
	t := c.first
	if c.first = t.next; c.first == nil {
		c.last = nil
	}
	t.next = nil
}

func (c *conn) pass() {
	switch t := c.first; {
	case t == nil || c.err != nil:
	case t.gone:
		c.tasks.Go(c.drain)
	default:
		t.leads = true
		t.lead <- struct{}{}
	}
}

// drain reads the answers that nobody waits for any more.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && c.first != nil && c.first.gone {
		t := c.first
		c.limit(time.Now().Add(stalled))
		c.mu.Unlock()
		err := c.read(t, make([]Reply, t.left))
		c.mu.Lock()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.end(errSilent)
			return
		case err != nil:
			c.end(err)
			return
		}
		c.pop()
	}
	if c.err == nil {
		c.pass()
	}
}

// end ends the connection, and all calls on it; under mu.
func (c *conn) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	_ = under(c.net).Close() // TLS would say a farewell first, and might have to wait for that
	for t := c.first; t != nil; t = t.next {
		if !t.leads && !t.gone {
			t.leads = true
			t.lead <- struct{}{}
		}
	}
}

func (c *conn) close(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(why)
}
