package redislock

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// What a conn reads, and whether there is anybody to read from.

// usable tells whether the connection lives. One that nobody used for a while is looked
// at: a server that has gone said so, and what was sent to it would be unknown.
func (c *conn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.first == nil && time.Since(c.wrote) > unused {
		c.limit(time.Time{}) // past the limit of the last call nothing can be looked at
		if hungUpOn(c.net) {
			c.end(io.EOF)
		}
	}
	return c.err == nil
}

// unused is after how long a connection is looked at.
const unused = 50 * time.Millisecond

// under is the connection that TLS is spoken over, if it is.
func under(nc net.Conn) net.Conn {
	if over, ok := nc.(*tls.Conn); ok {
		return over.NetConn()
	}
	return nc
}

// hungUpOn tells whether the other side has closed the connection, or is about to: where
// nothing was asked, what it says can only be its farewell.
func hungUpOn(nc net.Conn) (gone bool) {
	sc, ok := under(nc).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, why := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		gone = !errors.Is(why, syscall.EAGAIN) && !errors.Is(why, syscall.EINTR)
		return true
	})
	return gone || err != nil
}

// read reads what is left of the answers to t, into the end of replies. It can be gone
// on with after an error of a time limit.
func (c *conn) read(t *turn, replies []Reply) error {
	for t.left > 0 {
		b, err := c.next()
		if err != nil {
			return err
		}
		replies[len(replies)-t.left], _ = readReply(b)
		t.left--
	}
	return nil
}

// next is the next whole reply; it is valid until next is called again.
func (c *conn) next() ([]byte, error) {
	for {
		whole, err := c.scan(c.in[c.start:])
		if err != nil {
			return nil, err
		}
		if whole {
			b := c.in[c.start : c.start+c.seen]
			c.start += c.seen
			c.scanner = scanner{}
			return b, nil
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// listen subscribes to a channel, and returns when the connection ends.
func (c *conn) listen(channel string, ready func(), heard func(string)) error {
	subscribe := command("SUBSCRIBE", channel)
	c.mu.Lock()
	c.out = appendCommand(c.out, &subscribe)
	c.write()
	c.limit(time.Time{})
	c.mu.Unlock()
	for {
		b, err := c.next()
		if err != nil {
			return err
		}
		if b[0] != '*' {
			r, _ := readReply(b)
			return r.Err
		}
		_, n, _ := cutLine(b)
		kind, rest := cutBulk(b[n:])
		switch string(kind) {
		case "message":
			_, rest = cutBulk(rest)
			text, _ := cutBulk(rest)
			heard(string(text))
		case plainKind:
			ready()
		}
	}
}

// mostKept is how much room is kept after a large answer.
const mostKept = 1 << 20

// fill reads more, into a buffer that is large enough.
func (c *conn) fill() error {
	switch {
	case c.start == len(c.in):
		if c.in, c.start = c.in[:0], 0; cap(c.in) > mostKept {
			c.in = make([]byte, 0, bufferSize)
		}
	case len(c.in) == cap(c.in):
		rest := c.in[c.start:]
		if c.start == 0 {
			c.in = make([]byte, 0, 2*cap(c.in))
		}
		c.in, c.start = append(c.in[:0], rest...), 0
	}
	n, err := c.net.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	return err
}
