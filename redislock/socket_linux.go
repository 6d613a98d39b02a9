package redislock

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// socket reads and writes a TCP connection without telling the scheduler of its calls
// (RawSyscall), as its descriptor never blocks. A program that wakes up for one message would
// else wake the runtime's monitor with the first call that it makes, each time, and that
// is two switches of threads.
type socket struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out job
}

// job is one call, kept so that it costs no allocation.
type job struct {
	call   func(fd uintptr) (done bool)
	buffer []byte
	n      int
	err    syscall.Errno
}

// quietly gives a connection that does so, if it can.
func quietly(nc net.Conn) net.Conn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nc
	}
	s := &socket{TCPConn: tcp, raw: raw}
	s.in.call = func(fd uintptr) bool { return s.in.do(syscall.SYS_READ, fd) }
	s.out.call = func(fd uintptr) bool { return s.out.do(syscall.SYS_WRITE, fd) }
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

// Read is for one caller at a time, as is Write.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.in.run("read", b, s.raw.Read)
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

func (s *socket) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var some int
		some, err = s.out.run("write", b[n:], s.raw.Write)
		n += some
	}
	return n, err
}
