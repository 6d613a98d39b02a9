package redislock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// socket reads and writes a TCP connection without telling the scheduler of its calls
// (RawSyscall), as its descriptor never blocks. A program that wakes up for one message would
// else wake the runtime's monitor with the first call that it makes, each time, and that
// is two switches of threads.
//
// It holds up nobody who writes: what the other side has no room for is kept, and sent by a
// task. So a caller whose ctx ends can leave, and what he had begun is finished
// nevertheless, also where TLS is spoken over it.
type socket struct {
	*net.TCPConn
	raw           syscall.RawConn
	in, out, late job
	tasks         *sync.WaitGroup

	mu   sync.Mutex
	rest []byte // what is kept
	err  error  // why nothing can be written any more
}

// job is one call, kept so that it costs no allocation.
type job struct {
	call   func(fd uintptr) (done bool)
	buffer []byte
	n      int
	err    syscall.Errno
}

// quietly gives a connection that does so, if it can.
func quietly(nc net.Conn, tasks *sync.WaitGroup) net.Conn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nc
	}
	s := &socket{TCPConn: tcp, raw: raw, tasks: tasks}
	s.in.call = func(fd uintptr) bool { return s.in.do(syscall.SYS_READ, fd) }
	s.late.call = func(fd uintptr) bool { return s.late.do(syscall.SYS_WRITE, fd) }
	s.out.call = func(fd uintptr) bool {
		s.out.do(syscall.SYS_WRITE, fd)
		return true // whether it could be made or not
	}
	return s
}

// do makes the call; it is not done if it would have to wait.
func (j *job) do(trap, fd uintptr) bool {
	for {
		n, _, err := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(j.buffer))), uintptr(len(j.buffer)))
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			j.n, j.err = 0, 0
			return false
		case 0:
			j.n, j.err = int(n), 0
		default:
			j.n, j.err = 0, err
		}
		return true
	}
}

// run makes one call, when it can be made.
func (j *job) run(name string, b []byte, wait func(func(uintptr) bool) error) (int, error) {
	j.buffer = b
	err := wait(j.call)
	j.buffer = nil
	switch {
	case err != nil:
		return 0, err
	case j.err != 0:
		return 0, os.NewSyscallError(name, j.err)
	}
	return j.n, nil
}

// Read is for one caller at a time.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.in.run("read", b, s.raw.Read)
	switch {
	case n == 0 && err == nil && len(b) > 0:
		err = io.EOF
	case err != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			err = s.err
		}
	}
	return n, err
}

// Write takes all of b and does not wait.
func (s *socket) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return 0, s.err
	case len(s.rest) == 0:
		if n, err = s.fill(b); n == len(b) || err != nil {
			return n, err
		}
		s.tasks.Go(s.send)
	}
	s.rest = append(s.rest, b[n:]...)
	return len(b), nil
}

// fill writes as much as there is room for.
func (s *socket) fill(b []byte) (n int, err error) {
	for n < len(b) {
		some, err := s.out.run("write", b[n:], s.raw.Write)
		if some == 0 || err != nil {
			return n, err
		}
		n += some
	}
	return n, nil
}

// send writes what is kept, and what comes meanwhile. If nothing of it goes for long, the
// connection has ended.
func (s *socket) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.rest) > 0 && s.err == nil {
		rest := s.rest
		s.mu.Unlock()
		_ = s.SetWriteDeadline(time.Now().Add(stalled))
		n, err := s.late.run("write", rest, s.raw.Write)
		s.mu.Lock()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errSilent
		}
		if s.rest = s.rest[n:]; err != nil && s.err == nil {
			s.err = err
			_ = s.TCPConn.Close() // who reads learns of it
		}
	}
	s.rest = nil
	_ = s.SetWriteDeadline(time.Time{})
}

// Close ends what is being written too.
func (s *socket) Close() error {
	s.mu.Lock()
	if s.err == nil {
		s.err = net.ErrClosed
	}
	s.mu.Unlock()
	return s.TCPConn.Close()
}
