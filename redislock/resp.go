package redislock

import (
	"bytes"
	"errors"
	"strconv"
)

// What travels on a connection of our own: RESP, the version that all servers
// speak without being asked (2).

var errProtocol = errors.New("redis: the server does not speak its protocol")

// appendCommand adds a command as it is sent.
func appendCommand(b []byte, c *Command) []byte {
	b = appendHead(b, '*', len(c.Words))
	for _, word := range c.Words {
		b = appendHead(b, '$', len(word))
		b = append(append(b, word...), '\r', '\n')
	}
	return b
}

func appendHead(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

// scanner finds where a reply ends, without looking at anything twice: what it
// has seen of one stays seen when more arrives.
type scanner struct {
	seen int // bytes
	open int // elements that are still to come; 0: none was begun
}

// scan tells whether the first reply in b is whole; then seen is its length.
func (s *scanner) scan(b []byte) (whole bool, err error) {
	if s.open == 0 {
		s.open = 1
	}
	for s.open > 0 {
		line, n, ok := cutLine(b[s.seen:])
		if !ok {
			return false, nil
		}
		more, size := 0, -1
		switch line[0] {
		case '+', '-', ':':
		case '$':
			if size, err = lengthOf(line); err != nil {
				return false, err
			}
		case '*':
			if more, err = lengthOf(line); err != nil {
				return false, err
			}
		default:
			return false, errProtocol
		}
		if size >= 0 {
			n += size + 2
		}
		if len(b)-s.seen < n {
			return false, nil
		}
		s.seen += n
		s.open += max(0, more) - 1
	}
	return true, nil
}

// cutLine takes the first line; n counts its end too. It is not empty.
func cutLine(b []byte) (line []byte, n int, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 {
		return nil, 0, false
	}
	return b[:end-1], end + 1, true
}

// longestText is more than a server ever has in one text.
const longestText = 1 << 30

// lengthOf reads the number behind the kind; -1 stands for nothing.
func lengthOf(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1:])) // the compiler makes no copy
	if err != nil || n < -1 || n > longestText {
		return 0, errProtocol
	}
	return n, nil
}

// readReply reads a reply that is whole, and tells how long it is.
func readReply(b []byte) (r Reply, size int) {
	line, size, _ := cutLine(b)
	switch rest := line[1:]; line[0] {
	case '-':
		r.Err = ServerError(rest)
	case ':':
		r.Int, _ = strconv.ParseInt(string(rest), 10, 64) // a number: the server says so
	case '$':
		n, _ := lengthOf(line)
		if r.Null = n < 0; !r.Null {
			r.Text = string(b[size : size+n])
			size += n + 2
		}
	case '*':
		n, _ := lengthOf(line)
		if r.Null = n < 0; r.Null {
			break
		}
		r.List = make([]Reply, n)
		for i := range r.List {
			var of int
			r.List[i], of = readReply(b[size:])
			size += of
		}
	default:
		r.Text = string(rest)
	}
	return r, size
}

// cutBulk takes a text off that others follow.
func cutBulk(b []byte) (text, rest []byte) {
	line, at, ok := cutLine(b)
	if !ok || line[0] != '$' {
		return nil, nil
	}
	n, err := lengthOf(line)
	if err != nil || n < 0 || at+n+2 > len(b) {
		return nil, nil
	}
	return b[at : at+n], b[at+n+2:]
}
