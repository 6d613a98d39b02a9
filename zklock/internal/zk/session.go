// Package zk is a ZooKeeper client of one session, as far as locks need one. It
// repeats no request, sends requests of one call in one packet and in order,
// and knows until when the session surely lives.
package zk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Config says how to reach the servers. It may not be changed once in use.
type Config struct {
	Servers []string      // host:port
	Timeout time.Duration // of the session, as asked for
	// Dial makes a connection; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Digest is user:password, if not empty.
	Digest string
	// Path is one that syncs name; it need not exist.
	Path string
	// Event is told what a watch saw, before the answer to any later request. It
	// does not block.
	Event func(Event)
	// Resumed is told that the session goes on over a new connection, before
	// anything is sent on it: its watches are gone. Ended is told once that it is
	// over. They do not block.
	Resumed, Ended func()
}

// Event is what a watch saw.
type Event struct {
	Path     string
	Gone     bool // the node was deleted
	Children bool // one was made or deleted; if neither, the node was made or its data changed
}

// Kinds of events in the protocol.
const (
	eventDeleted  = 2
	eventChildren = 4
)

// Session is one session, over one connection at a time. All methods are safe
// for concurrent use.
type Session struct {
	config Config
	life   context.Context
	end    context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	id       int64
	password []byte
	timeout  time.Duration // as granted
	conn     *conn         // nil while there is none
	change   chan struct{} // closed when conn, down or over change
	down     error         // why no server could be reached, all having been tried
	over     error         // the session has ended
	zxid     int64         // the latest that was seen
	wrote    driver.Instant
	synced   driver.Instant
}

// The session's rhythm, in parts of its timeout; see Proof.
const (
	beatPart     = 16 // a sync is sent so often
	patiencePart = 4  // and answered in this time, or the server is given up
)

// handshake is how long a server may take to accept a session.
const handshake = 5 * time.Second

// ErrOver says that the session has ended, and its nodes with it.
var ErrOver = errors.New("zookeeper: the session has ended")

// Open makes a session. It tries each server once.
func Open(ctx context.Context, config *Config) (*Session, error) {
	s := &Session{config: *config, timeout: config.Timeout, password: make([]byte, 16), change: make(chan struct{})}
	s.config.Servers = append([]string(nil), config.Servers...)
	rand.Shuffle(len(s.config.Servers), func(i, j int) {
		s.config.Servers[i], s.config.Servers[j] = s.config.Servers[j], s.config.Servers[i]
	})
	s.life, s.end = context.WithCancel(context.Background())
	c, err := s.dialAll(ctx)
	if err != nil {
		s.end()
		return nil, err
	}
	s.attach(c)
	s.wg.Go(func() { s.run(c) })
	s.wg.Go(s.beat)
	return s, nil
}

// Timeout is how long the servers keep the session without a word from us.
func (s *Session) Timeout() time.Duration { return s.timeout }

// ID is the session's number.
func (s *Session) ID() int64 { return s.id }

// Do sends requests together and returns the answers, in order. An error says
// that they were not all answered: Unavailable or Canceled, that nothing was
// sent; Indeterminate, that all or some may have been applied.
func (s *Session) Do(ctx context.Context, ops ...Op) ([]Reply, error) {
	for {
		c, err := s.connected(ctx)
		if err != nil {
			return nil, err
		}
		if call := c.send(ops); call != nil {
			return call.wait(ctx)
		}
		s.detach(c)
	}
}

// connected returns the connection, or waits while it is being made anew.
func (s *Session) connected(ctx context.Context) (*conn, error) {
	for {
		s.mu.Lock()
		c, change, err := s.conn, s.change, s.down
		if s.over != nil {
			err = s.over
		}
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, &driver.Failure{Kind: driver.Canceled, Err: ctx.Err()}
		case c != nil:
			return c, nil
		case err != nil:
			return nil, &driver.Failure{Kind: driver.Unavailable, Err: err}
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, &driver.Failure{Kind: driver.Unavailable, Err: fmt.Errorf("zookeeper: connecting: %w", ctx.Err())}
		}
	}
}

// Proof is when the latest request was sent that proves the session: the
// servers keep it for Timeout from then, less an eighth and half a tick.
//
// A write proves that the server's leader was the leader, as a majority had to
// take it; but not that the leader knows how lately we were heard: a server
// tells it that with the next ping, every half tick, and a leader that stood
// still may expire us as soon as it goes on. An answered sync says that it did
// not stand still until then. Only one is under way at a time, and the next
// follows a sixteenth of the timeout later; so a write counts as long as it was
// sent less than two such spans after the last sync that was answered.
func (s *Session) Proof() driver.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.wrote, s.synced.Add(2*s.timeout/beatPart))
}

// answered notes what an answer tells of the session.
func (s *Session) answered(op int32, at driver.Instant, zxid int64, code ServerError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zxid = max(s.zxid, zxid)
	switch {
	case op == opSync && code == 0:
		s.synced = max(s.synced, at)
	case op == opSync || code > 0 || -100 < code && code < 0: // a server's own troubles
	case code == ErrSessionExpired || code == ErrSessionMoved || code == ErrNotReadOnly || code == ErrThrottled:
	case op != 0:
		s.wrote = max(s.wrote, at)
	}
}

// run keeps the session connected. A connection that breaks is made anew at once,
// unless it broke right away, as others before it.
func (s *Session) run(c *conn) {
	longest := min(s.timeout/beatPart, time.Second) / 2
	for pause := time.Duration(0); ; {
		began := driver.Now()
		s.serve(c)
		if driver.Now().Sub(began) > 2*longest {
			pause = 0
		}
		s.rest(pause)
		pause = min(2*pause+shortest, longest)
		var err error
		for c, err = s.dialAll(s.life); err != nil; c, err = s.dialAll(s.life) {
			if s.isOver(err) {
				return
			}
			s.set(func() { s.down = err })
			s.rest(longest)
		}
		if s.config.Resumed != nil {
			s.config.Resumed()
		}
		s.attach(c)
	}
}

// shortest is the first pause after a connection that broke right away.
const shortest = 10 * time.Millisecond

// rest sleeps for a pause and, if it is one, a little more by chance.
func (s *Session) rest(pause time.Duration) {
	if pause == 0 {
		return
	}
	timer := time.NewTimer(pause + rand.N(100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.life.Done():
	}
}

// serve reads from a connection until it breaks: whatever it was, a new one is
// made.
func (s *Session) serve(c *conn) {
	stop := context.AfterFunc(s.life, func() { c.fail(ErrOver) })
	defer stop()
	s.wg.Go(c.writer)
	_ = c.read() // fail has told it
	s.detach(c)
}

// isOver ends the session if it cannot go on.
func (s *Session) isOver(err error) bool {
	if !errors.Is(err, ErrOver) && s.life.Err() == nil {
		return false
	}
	s.set(func() { s.over = ErrOver })
	if s.life.Err() == nil && s.config.Ended != nil {
		s.config.Ended()
	}
	s.end()
	return true
}

// set changes the session's state and wakes those who wait for that.
func (s *Session) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.change)
	s.change = make(chan struct{})
}

func (s *Session) attach(c *conn) { s.set(func() { s.conn, s.down = c, nil }) }

func (s *Session) detach(c *conn) {
	s.set(func() {
		if s.conn == c {
			s.conn = nil
		}
	})
}

// beat sends the syncs.
func (s *Session) beat() {
	ticker := time.NewTicker(s.timeout / beatPart)
	defer ticker.Stop()
	op := []Op{Sync(s.config.Path)}
	op[0].beat = true
	for {
		select {
		case <-s.life.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		c := s.conn
		s.mu.Unlock()
		if c != nil {
			c.beat(op, s.timeout/patiencePart)
		}
	}
}

// dialAll tries each server once, beginning with another than last time.
func (s *Session) dialAll(ctx context.Context) (*conn, error) {
	var errs []error
	for range s.config.Servers {
		addr := s.config.Servers[0]
		s.config.Servers = append(s.config.Servers[1:], addr)
		c, err := s.dial(ctx, addr)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, ErrOver), ctx.Err() != nil:
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, &driver.Failure{Kind: driver.Unavailable, Err: errors.Join(errs...)}
}

func (s *Session) dial(ctx context.Context, addr string) (*conn, error) {
	limit := handshake
	if len(s.config.Servers) > 1 { // another may be quicker
		limit = min(max(s.timeout/patiencePart, handshake/5), handshake)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer in %v", limit))
	defer cancel()
	dial := s.config.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	at := driver.Now()
	nc, err := dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	c := &conn{s: s, net: nc, in: bufio.NewReaderSize(nc, 1<<14), wake: make(chan struct{}, 1), gone: make(chan struct{})}
	if err := c.shakeHands(at); err != nil || !stop() {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if !errors.Is(err, ErrOver) {
			err = fmt.Errorf("zookeeper: %s: %w", addr, err)
		}
		return nil, err
	}
	return c, nil
}

// shakeHands begins the session, or goes on with it. A session that was silent
// for longer than its timeout, or gets a shorter one, is closed: nobody trusts in
// it any more, and its nodes would keep names taken.
func (c *conn) shakeHands(at driver.Instant) error {
	s := c.s
	s.mu.Lock()
	id, zxid, heard := s.id, s.zxid, max(s.synced, s.wrote)
	s.mu.Unlock()
	stale := id != 0 && at.Sub(heard) > s.timeout
	if stale { // what it saw counts no more; servers that lost their data refuse who saw more than they have
		zxid = 0
	}
	b := appendLong(appendInt(nil, 0), zxid)
	b = appendLong(appendInt(b, int32(s.timeout.Milliseconds())), id) //nolint:gosec // a day at most
	b = appendBool(appendBuffer(b, s.password), false)
	if _, err := c.net.Write(append(appendInt(nil, int32(len(b))), b...)); err != nil { //nolint:gosec // small
		return err
	}
	frame, err := readFrame(c.in)
	if err != nil {
		return err
	}
	d := decoder{b: frame}
	d.int() // the version of the protocol
	timeout, newID, password := d.int(), d.long(), d.buffer()
	switch {
	case d.err != nil:
		return d.err
	case timeout <= 0:
		return ErrOver
	case stale || id != 0 && time.Duration(timeout)*time.Millisecond < s.timeout:
		c.xid++
		c.queue(c.xid, Op{code: opClose})
		_, _ = c.net.Write(c.out)          // it ends anyway, later
		_, _ = c.net.Read(make([]byte, 1)) // the answer, or ctx's end
		return ErrOver
	}
	s.mu.Lock()
	s.synced = at
	if id == 0 { // a session begins with a write
		s.wrote, s.id, s.timeout = at, newID, time.Duration(timeout)*time.Millisecond
		s.password = append([]byte(nil), password...)
	}
	s.mu.Unlock()
	if s.config.Digest != "" {
		c.queue(xidAuth, Op{code: opAuth, body: appendBuffer(appendString(appendInt(nil, 0), "digest"), []byte(s.config.Digest))})
		c.unread = 0 // not answered in order
		_, err = c.net.Write(c.out)
		c.out = c.out[:0]
	}
	return err
}

// Close ends our side. With farewell the servers end the session at once, and
// delete its nodes; else when its timeout is over. It takes a second at most.
func (s *Session) Close(farewell bool) {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if farewell && c != nil {
		if call := c.send([]Op{{code: opClose}}); call != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _ = call.wait(ctx) // if it is lost the session runs out
			cancel()
		}
	}
	s.end()
	s.wg.Wait()
}
