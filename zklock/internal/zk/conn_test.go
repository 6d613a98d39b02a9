package zk

import (
	"bufio"
	"bytes"
	"net"
	"testing"
)

// slow is a connection whose writes take until they are let.
type slow struct {
	net.Conn
	begun, let chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	s.begun <- struct{}{}
	<-s.let
	return len(b), nil
}

func (s *slow) Close() error { return nil }

func newConn(n net.Conn, in []byte) *conn {
	return &conn{
		s: &Session{}, net: n, in: bufio.NewReader(bytes.NewReader(in)),
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// A caller does not write what others have queued, if that may take long.
func TestCallerWritesLittle(t *testing.T) {
	t.Parallel()
	n := &slow{begun: make(chan struct{}), let: make(chan struct{})}
	c := newConn(n, nil)
	returned := make(chan struct{})
	go func() {
		c.send([]Op{Sync("/first")})
		close(returned)
	}()
	<-n.begun
	c.send([]Op{Create("/much", make([]byte, 2*soon), nil, Ephemeral)})
	n.let <- struct{}{}
	select {
	case <-returned:
	case <-n.begun:
		t.Fatal("the first caller writes the second one's request")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.writer()
	}()
	<-n.begun
	n.let <- struct{}{}
	c.fail(ErrOver)
	<-done
}

// Answers out of order break the connection: nobody may get another's.
func TestAnswersInOrder(t *testing.T) {
	t.Parallel()
	answer := func(xid int32) []byte {
		b := appendInt(appendLong(appendInt(nil, xid), 1), 0)
		return append(appendInt(nil, int32(len(b))), b...) //nolint:gosec // 16
	}
	n := &slow{begun: make(chan struct{}, 9), let: make(chan struct{})}
	close(n.let)
	c := newConn(n, append(answer(2), answer(1)...))
	first, second := c.send([]Op{Sync("/a")}), c.send([]Op{Sync("/b")})
	if err := c.read(); err == nil {
		t.Error("no error")
	}
	for _, cl := range []*call{first, second} {
		if _, err := cl.wait(t.Context()); err == nil {
			t.Error("answered with another's answer")
		}
	}
}

// Only what the servers' log says proves that a majority is there.
func TestProofs(t *testing.T) {
	t.Parallel()
	for code, proves := range map[ServerError]bool{
		0: true, ErrNoNode: true, ErrNodeExists: true, ErrNoAuth: true, ErrBadVersion: true,
		ErrThrottled: false, ErrNotReadOnly: false, ErrSessionExpired: false, ErrSessionMoved: false, ErrOperationTimeout: false, -4: false,
	} {
		s := &Session{}
		s.answered(opDelete, 7, 1, code)
		if (s.wrote == 7) != proves {
			t.Errorf("%v: %v", code, s.wrote)
		}
	}
}
