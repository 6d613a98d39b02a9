package zk

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// conn is one connection to one server. Requests leave in the order of send,
// all that were queued while a write was on its way as one; the server answers
// in that order.
type conn struct {
	s   *Session
	net net.Conn
	in  *bufio.Reader

	mu      sync.Mutex
	out     []byte // to be written
	spare   []byte // the buffer of the write before
	writing bool   // somebody writes, and goes on with what is queued
	waiting []sent // for answers, in order
	unread  int    // bytes of requests that are not answered
	xid     int32
	broken  error
	wake    chan struct{}  // has the writer write what is queued; one entry
	gone    chan struct{}  // closed when broken
	syncing driver.Instant // when the sync was sent that is not answered; 0: none
}

// sent is a request whose answer is due.
type sent struct {
	call *call
	i    int // of the call's requests
	xid  int32
	size int
	op   int32
	at   driver.Instant
}

// call is requests that were made together.
type call struct {
	replies []Reply
	left    int // to be answered; under conn.mu
	err     error
	done    chan struct{}
}

const (
	// maxFrame is more than any answer that we ask for; a list of 100,000
	// children has six million bytes.
	maxFrame = 1 << 26
	// soon is how many bytes the kernel surely takes without a pause.
	soon = 8 << 10
)

// send queues requests. It is nil if the connection is broken.
func (c *conn) send(ops []Op) *call {
	cl := &call{replies: make([]Reply, len(ops)), left: len(ops), done: make(chan struct{})}
	now := driver.Now()
	c.mu.Lock()
	if c.broken != nil {
		c.mu.Unlock()
		return nil
	}
	for i, op := range ops {
		c.xid = c.xid&0x7fffffff + 1
		c.queue(c.xid, op)
		c.waiting = append(c.waiting, sent{cl, i, c.xid, 12 + len(op.body), op.kind(), now})
	}
	c.flush()
	return cl
}

// kind is the number of an op, or 0 if it is of no interest when it is answered.
func (o Op) kind() int32 {
	if o.writes() || o.beat {
		return o.code
	}
	return 0
}

// queue appends a frame; under mu.
func (c *conn) queue(xid int32, op Op) {
	size := 8 + len(op.body)
	c.out = appendInt(appendInt(appendInt(c.out, int32(size)), xid), op.code) //nolint:gosec // small
	c.out = append(c.out, op.body...)
	c.unread += 4 + size
}

// flush sees that what is queued is written. A caller does it himself, as that
// is sooner, where the kernel surely takes it without blocking him. Called with
// mu, returns without.
func (c *conn) flush() {
	if c.writing {
		c.mu.Unlock()
		return
	}
	c.writing = true
	if c.unread > soon {
		c.wake <- struct{}{}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.write(true)
}

// writer writes for those who must not block.
func (c *conn) writer() {
	for {
		select {
		case <-c.wake:
			c.write(false)
		case <-c.gone:
			return
		}
	}
}

// write writes until nothing is queued. A caller leaves to the writer what others
// have queued meanwhile, if the kernel may not take it at once.
func (c *conn) write(caller bool) {
	for {
		c.mu.Lock()
		if len(c.out) == 0 || c.broken != nil {
			c.writing = false
			c.mu.Unlock()
			return
		}
		if caller && c.unread > soon {
			c.wake <- struct{}{}
			c.mu.Unlock()
			return
		}
		part := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		_, err := c.net.Write(part)
		c.mu.Lock()
		c.spare = part
		c.mu.Unlock()
		if err != nil {
			c.fail(err)
		}
	}
}

// fail breaks the connection: nothing is answered on it any more.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.broken != nil {
		c.mu.Unlock()
		return
	}
	c.broken = err
	close(c.gone)
	lost := &driver.Failure{Kind: driver.Indeterminate, Err: fmt.Errorf("zookeeper: the connection broke before the answer: %w", err)}
	for _, w := range c.waiting {
		if w.call.left > 0 { // once for all of its requests
			w.call.left, w.call.err = 0, lost
			close(w.call.done)
		}
	}
	c.waiting = nil
	c.mu.Unlock()
	_ = c.net.Close()
}

// read handles what the server says, until the connection breaks.
func (c *conn) read() error {
	for {
		frame, err := readFrame(c.in)
		if err == nil {
			err = c.take(frame)
		}
		if err != nil {
			c.fail(err)
			return err
		}
	}
}

func readFrame(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxFrame {
		return nil, fmt.Errorf("an answer of %d bytes", size)
	}
	if _, err = r.Discard(4); err != nil {
		return nil, err
	}
	frame := make([]byte, size)
	_, err = io.ReadFull(r, frame)
	return frame, err
}

// take handles one message.
func (c *conn) take(frame []byte) error {
	d := decoder{b: frame}
	xid, zxid, code := d.int(), d.long(), ServerError(d.int())
	if d.err != nil {
		return d.err
	}
	switch xid {
	case xidWatch:
		kind := d.int()
		d.int() // the state of the session
		e := Event{Gone: kind == eventDeleted, Children: kind == eventChildren}
		if e.Path = d.text(); d.err == nil && c.s.config.Event != nil {
			c.s.config.Event(e)
		}
		return d.err
	case xidAuth:
		return nil // a server that refuses it closes the connection
	}
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.mu.Unlock()
		return errors.New("an answer that nobody asked for")
	}
	w := c.waiting[0]
	if w.xid != xid {
		c.mu.Unlock()
		return fmt.Errorf("answer %d in place of %d", xid, w.xid)
	}
	c.waiting = c.waiting[1:]
	c.unread -= w.size
	if w.op == opSync {
		c.syncing = 0
	}
	c.mu.Unlock()
	c.s.answered(w.op, w.at, zxid, code)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.call.left == 0 {
		return nil // it broke meanwhile
	}
	reply := &w.call.replies[w.i]
	if reply.body = d.b; code != 0 {
		reply.Err = code
	}
	if w.call.left--; w.call.left == 0 {
		close(w.call.done)
	}
	return nil
}

// beat sends a sync, if none is on its way. A server that has not answered one
// for so long is given up.
func (c *conn) beat(op []Op, patience time.Duration) {
	now := driver.Now()
	c.mu.Lock()
	since := c.syncing
	if since == 0 {
		c.syncing = now
	}
	c.mu.Unlock()
	switch {
	case since == 0:
		c.send(op)
	case now.Sub(since) > patience:
		c.fail(fmt.Errorf("no answer from %s for %v", c.net.RemoteAddr(), patience))
	}
}

// wait waits for the answers, or until ctx ends.
func (cl *call) wait(ctx context.Context) ([]Reply, error) {
	select {
	case <-cl.done:
		return cl.replies, cl.err
	case <-ctx.Done():
		return nil, &driver.Failure{Kind: driver.Indeterminate, Err: ctx.Err()}
	}
}
