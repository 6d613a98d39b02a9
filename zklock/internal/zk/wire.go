package zk

import (
	"encoding/binary"
	"errors"
	"strconv"
)

// The requests that we send, by their numbers in the protocol.
const (
	opNotify          = 0
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opGetChildren     = 8
	opSync            = 9
	opMulti           = 14
	opCreate2         = 15
	opCreateContainer = 19
	opAuth            = 100
	opClose           = -11
)

// The numbers of messages that answer no request of ours, or one that is not
// counted.
const (
	xidWatch = -1
	xidAuth  = -4
)

// Mode is what kind of node is made.
type Mode int32

// The kinds of nodes.
const (
	Persistent          Mode = 0
	Ephemeral           Mode = 1
	EphemeralSequential Mode = 3
	container           Mode = 4
)

// ACL is one entry of who may do what with a node.
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// All permissions, and the one to read.
const (
	PermRead int32 = 1
	PermAll  int32 = 31
)

// Stat is what the server knows of a node beside its data.
type Stat struct {
	Czxid, Mzxid, Ctime, Mtime int64
	Version                    int32
	EphemeralOwner             int64
}

// Op is one request. Its paths are absolute.
type Op struct {
	code int32
	body []byte
	beat bool // of the session's own syncs
}

// Create makes a node of any kind but a container. A sequential one gets a
// number at the end of its name, see [Reply.Created].
func Create(path string, data []byte, acl []ACL, mode Mode) Op {
	return Op{code: opCreate2, body: appendCreate(make([]byte, 0, len(path)+len(data)+64), path, data, acl, mode)}
}

// CreateContainer makes a node that the server deletes some time after its last
// child has gone.
func CreateContainer(path string, data []byte, acl []ACL) Op {
	return Op{code: opCreateContainer, body: appendCreate(nil, path, data, acl, container)}
}

func appendCreate(b []byte, path string, data []byte, acl []ACL, mode Mode) []byte {
	b = appendBuffer(appendString(b, path), data)
	b = appendInt(b, int32(len(acl))) //nolint:gosec // a few
	for _, a := range acl {
		b = appendString(appendString(appendInt(b, a.Perms), a.Scheme), a.ID)
	}
	return appendInt(b, int32(mode))
}

// Delete deletes a node, whatever its version.
func Delete(path string) Op {
	return Op{code: opDelete, body: appendInt(appendString(make([]byte, 0, len(path)+8), path), -1)}
}

// SetData replaces a node's data if it has that version.
func SetData(path string, data []byte, version int32) Op {
	return Op{code: opSetData, body: appendInt(appendBuffer(appendString(nil, path), data), version)}
}

// GetData reads a node, and watches it if there is one: the watch tells once
// that the data changed or that the node is gone.
func GetData(path string, watch bool) Op { return read(opGetData, path, watch) }

// GetChildren lists a node's children, in no order, and watches the list.
func GetChildren(path string, watch bool) Op { return read(opGetChildren, path, watch) }

// Exists asks for a node's Stat. A watch tells also that the node was made.
func Exists(path string, watch bool) Op { return read(opExists, path, watch) }

func read(code int32, path string, watch bool) Op {
	return Op{code: code, body: appendBool(appendString(make([]byte, 0, len(path)+5), path), watch)}
}

// Sync makes the requests after it see all that any client was told before.
func Sync(path string) Op { return Op{code: opSync, body: appendString(nil, path)} }

// Multi does all of the requests or none, in one step. They may be of Create,
// Delete and SetData.
func Multi(ops ...Op) Op {
	var b []byte
	for _, op := range ops {
		b = append(appendInt(appendBool(appendInt(b, op.code), false), -1), op.body...)
	}
	return Op{code: opMulti, body: appendInt(appendBool(appendInt(b, -1), true), -1)}
}

// IsMulti tells whether the answer is that of several.
func (o Op) IsMulti() bool { return o.code == opMulti }

// writes tells whether a request goes through the servers' log, also if it is
// refused.
func (o Op) writes() bool {
	switch o.code {
	case opCreate2, opCreateContainer, opDelete, opSetData, opMulti:
		return true
	}
	return false
}

// Reply is the server's answer to one request.
type Reply struct {
	Err  error // a ServerError, nil if all went well
	body []byte
}

// NoNode tells whether there was no such node.
func (r *Reply) NoNode() bool { return errors.Is(r.Err, ErrNoNode) }

// Refused tells whether the answer is an error other than that.
func (r *Reply) Refused() bool { return r.Err != nil && !r.NoNode() }

var errShort = errors.New("an answer is shorter than it should be")

// Created reads the answer to a Create or, in the place of its first request,
// a Multi.
func (r *Reply) Created() (path string, stat Stat, err error) {
	d := decoder{b: r.body}
	path, stat = d.text(), d.stat()
	return path, stat, d.err
}

// FirstCreated reads the answer to a Multi whose first request was a Create.
func (r *Reply) FirstCreated() (stat Stat, err error) {
	if err := r.Failed(); err != nil {
		return stat, err
	}
	d := decoder{b: r.body}
	d.skip(4 + 1 + 4)
	_, stat = d.text(), d.stat()
	return stat, d.err
}

// Failed is the error of a Multi that was refused because of its first request.
func (r *Reply) Failed() error {
	d := decoder{b: r.body}
	kind := d.int()
	d.skip(1)
	if code := ServerError(d.int()); kind == -1 && d.err == nil {
		return code
	}
	return d.err
}

// Data reads the answer to a GetData.
func (r *Reply) Data() (data []byte, stat Stat, err error) {
	d := decoder{b: r.body}
	data, stat = d.buffer(), d.stat()
	return data, stat, d.err
}

// Stat reads the answer to Exists and SetData.
func (r *Reply) Stat() (stat Stat, err error) {
	d := decoder{b: r.body}
	stat = d.stat()
	return stat, d.err
}

// Children reads the answer to a GetChildren.
func (r *Reply) Children() ([]string, error) {
	d := decoder{b: r.body}
	n := int(d.int())
	if n < 0 || n > len(r.body)/4 {
		return nil, errShort
	}
	names := make([]string, n)
	for i := range names {
		names[i] = d.text()
	}
	return names, d.err
}

func appendInt(b []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(v)) //nolint:gosec // the same bits
}

func appendLong(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(v)) //nolint:gosec // the same bits
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	return append(appendInt(b, int32(len(s))), s...) //nolint:gosec // names and paths
}

func appendBuffer(b, data []byte) []byte {
	return append(appendInt(b, int32(len(data))), data...) //nolint:gosec // small
}

// decoder reads the parts of a message; the first that is missing spoils the
// rest.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.err, d.b = errShort, nil
		return nil
	}
	part := d.b[:n]
	d.b = d.b[n:]
	return part
}

func (d *decoder) skip(n int) { d.take(n) }

func (d *decoder) int() int32 {
	if part := d.take(4); part != nil {
		return int32(binary.BigEndian.Uint32(part)) //nolint:gosec // the same bits
	}
	return 0
}

func (d *decoder) long() int64 {
	if part := d.take(8); part != nil {
		return int64(binary.BigEndian.Uint64(part)) //nolint:gosec // the same bits
	}
	return 0
}

// buffer is data with its length before it; -1 stands for none.
func (d *decoder) buffer() []byte {
	n := d.int()
	if n <= 0 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) text() string { return string(d.buffer()) }

func (d *decoder) stat() (s Stat) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.long(), d.long(), d.long(), d.long()
	s.Version = d.int()
	d.skip(4 + 4) // of children and ACL
	s.EphemeralOwner = d.long()
	d.skip(4 + 4 + 8) // sizes and the last change of children
	return s
}

// ServerError is an error that the server answered.
type ServerError int32

// Codes that somebody looks at.
const (
	ErrUnimplemented           ServerError = -6
	ErrBadArguments            ServerError = -8
	ErrMarshallingError        ServerError = -5
	ErrOperationTimeout        ServerError = -7
	ErrNoNode                  ServerError = -101
	ErrNoAuth                  ServerError = -102
	ErrBadVersion              ServerError = -103
	ErrNoChildrenForEphemerals ServerError = -108
	ErrNodeExists              ServerError = -110
	ErrSessionExpired          ServerError = -112
	ErrInvalidACL              ServerError = -114
	ErrAuthFailed              ServerError = -115
	ErrSessionMoved            ServerError = -118
	ErrNotReadOnly             ServerError = -119
	ErrQuotaExceeded           ServerError = -125
	ErrThrottled               ServerError = -127
)

var codeWords = map[ServerError]string{
	ErrUnimplemented: "unimplemented", ErrBadArguments: "bad arguments", ErrMarshallingError: "marshalling error", ErrOperationTimeout: "timeout",
	ErrNoNode: "no node", ErrNoAuth: "not authenticated for it", ErrBadVersion: "bad version",
	ErrNoChildrenForEphemerals: "ephemeral nodes have no children", ErrNodeExists: "node exists", ErrSessionExpired: "session expired",
	ErrInvalidACL: "invalid ACL", ErrAuthFailed: "authentication failed", ErrSessionMoved: "session moved to another server",
	ErrNotReadOnly: "the server is read-only: it has no leader", ErrQuotaExceeded: "quota exceeded", ErrThrottled: "throttled",
}

func (c ServerError) Error() string {
	if words := codeWords[c]; words != "" {
		return words
	}
	return "server error " + strconv.Itoa(int(c))
}
