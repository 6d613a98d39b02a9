//go:build !linux

package redislock

import (
	"net"
	"sync"
	"time"
)

// socket holds up who writes, but not for ever.
type socket struct{ *net.TCPConn }

func quietly(nc net.Conn, _ *sync.WaitGroup) net.Conn {
	if tcp, ok := nc.(*net.TCPConn); ok {
		return socket{tcp}
	}
	return nc
}

func (s socket) Write(b []byte) (int, error) {
	_ = s.SetWriteDeadline(time.Now().Add(stalled))
	return s.TCPConn.Write(b)
}
