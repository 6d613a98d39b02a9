package guard

import (
	"encoding/binary"
	"errors"
	"syscall"
)

// kind says what a message means; n are its numbers and text its text.
type kind byte

const (
	// From the wrapper.
	kindStart    kind = iota + 1 // n: grace, lost signal; text: path, then variables, NUL between; files: the lock's
	kindDeadline                 // n: when to send the lost signal, when to kill; 0 is never
	kindSignal                   // n: the signal to forward
	kindEnd                      // n: the signal to send to the whole tree or 0, when to kill
	// From the guard.
	kindStarted // n: pid
	kindFailed  // n: errno
	kindExited  // n: wait status
	kindStopped // n: signal
	kindExpired // the deadline came, and the lost signal was sent
	kindLeft    // text: what outlived the command and is being ended
	kindStuck   // text: what could not be killed
	kindGone    // the whole tree is dead and reaped
)

// maxMessage bounds a message; the path and the few variables of a start fit.
const maxMessage = 64 << 10

// maxFiles is how many descriptors travel with a message; the kernel's own
// limit is 253.
const maxFiles = 64

type message struct {
	kind kind
	n    [2]int64
	text string
}

var errTooBig = errors.New("guard: message too big")

func (m message) encode() ([]byte, error) {
	b := make([]byte, 0, 17+len(m.text))
	b = append(b, byte(m.kind))
	for _, n := range m.n {
		b = binary.LittleEndian.AppendUint64(b, uint64(n)) //nolint:gosec // the bits as they are
	}
	b = append(b, m.text...)
	if len(b) > maxMessage {
		return nil, errTooBig
	}
	return b, nil
}

func decode(b []byte) (message, bool) {
	if len(b) < 17 {
		return message{}, false
	}
	m := message{kind: kind(b[0]), text: string(b[17:])}
	for i := range m.n {
		m.n[i] = int64(binary.LittleEndian.Uint64(b[1+8*i:])) //nolint:gosec // the bits as they are
	}
	return m, true
}

// socketPair makes the two ends of the talk. It keeps the borders of messages
// and ends on one side when the last descriptor of the other is closed.
func socketPair() ([2]int, error) {
	return syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
}

// send sends a message, with copies of files.
func send(fd int, m message, files ...int) error { return sendFlags(fd, m, 0, files) }

// sendNow sends a message, unless the other side has left too many unread.
func sendNow(fd int, m message) error { return sendFlags(fd, m, syscall.MSG_DONTWAIT, nil) }

func sendFlags(fd int, m message, flags int, files []int) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = syscall.UnixRights(files...)
	}
	for {
		err := syscall.Sendmsg(fd, b, rights, nil, syscall.MSG_NOSIGNAL|flags)
		if err != syscall.EINTR {
			return err
		}
	}
}

// receive waits for the next message. ok is false at the end of the talk. If the
// other side ended before it read all that was sent to it, the kernel says so
// once (ECONNRESET), before what the other had said last.
func receive(fd int, buf []byte) (m message, files []int, ok bool) {
	rights := make([]byte, syscall.CmsgSpace(4*maxFiles))
	for {
		n, rn, _, _, err := syscall.Recvmsg(fd, buf, rights, syscall.MSG_CMSG_CLOEXEC)
		if err == syscall.EINTR || err == syscall.ECONNRESET {
			continue
		}
		if err != nil || n == 0 {
			return message{}, nil, false
		}
		m, ok = decode(buf[:n])
		return m, parseRights(rights[:rn]), ok
	}
}

func parseRights(b []byte) []int {
	var files []int
	controls, err := syscall.ParseSocketControlMessage(b)
	if err != nil {
		return nil
	}
	for i := range controls {
		if fds, err := syscall.ParseUnixRights(&controls[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}
