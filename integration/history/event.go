// Package history records what the users of a lock saw, and judges it.
//
// A program under test stamps what it asks for and what it is told: one log a
// process, one line an event (see [Recorder]). All processes of one machine
// read one clock, so the logs of many are one history, with no clocks to trust.
// [New] reads it, and [History.Check] holds it against three checks:
//
//   - belief ([History.Beliefs]): no two who might act on a name at the same
//     moment conflict;
//   - order ([History.Tokens]): a later grant has a larger token;
//   - model ([History.Model]): there is an order of all grants and releases,
//     each within its call, that a single lock could have done (porcupine).
//
// The first two need no search and take histories of any length.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Kind is what happened.
type Kind string

// The events. Those of one acquire, from its call to the end of its lease,
// carry one Op.
const (
	Acquire  Kind = "acquire"  // is called: Name, Mode, N, Limit
	Granted  Kind = "granted"  // returned a lease: Token, Deadline, Root
	Refused  Kind = "refused"  // returned an error after which nothing is held: Err
	Unknown  Kind = "unknown"  // returned an error that leaves the outcome open: Err
	Held     Kind = "held"     // the holder looked: Deadline moved
	Lost     Kind = "lost"     // the holder was told that its lease ended: Err
	Release  Kind = "release"  // is called
	Released Kind = "released" // returned: OK if the store surely freed it
	Closing  Kind = "closing"  // Close of Client is called, which ends all its leases
	Killed   Kind = "killed"   // Proc was killed, no sooner than this: by its parent
	Break    Kind = "break"    // somebody frees Name by force, whoever holds Token
	Effect   Kind = "effect"   // under a lease, the resource went from Was to Now
	Fault    Kind = "fault"    // something was done to the program or the store: Err
)

// Modes of a lock, as [driver.Mode] prints them.
const (
	Exclusive = "exclusive"
	Shared    = "shared"
	Permits   = "permits"
)

// Event is one line of a log.
type Event struct {
	At     int64  `json:"at"` // nanoseconds of a clock that all processes share
	Kind   Kind   `json:"kind"`
	Proc   string `json:"proc,omitempty"`
	Client int    `json:"client,omitempty"` // within the process
	Op     uint64 `json:"op,omitempty"`     // within the process

	Name  string `json:"name,omitempty"`
	Mode  string `json:"mode,omitempty"`
	N     int    `json:"n,omitempty"`
	Limit int    `json:"limit,omitempty"`
	How   string `json:"how,omitempty"` // other options, for people

	Token    uint64 `json:"token,string,omitempty"`
	Deadline int64  `json:"deadline,omitempty"` // on the clock of At; 0: none
	// Root is the Op, of RootProc if that is another process, whose hold a
	// granted acquire shares: reentrant, or adopted.
	Root     uint64 `json:"root,omitempty"`
	RootProc string `json:"root_proc,omitempty"`

	OK  bool   `json:"ok,omitempty"`
	Was uint64 `json:"was,omitempty"`
	Now uint64 `json:"now,omitempty"`
	Err string `json:"err,omitempty"`
}

// Recorder stamps and keeps the events of one process. It may be used by many
// goroutines.
type Recorder struct {
	proc string
	now  func() int64

	mu     sync.Mutex
	last   int64
	ops    uint64
	file   *os.File // nil: events are kept in memory
	events []Event
	err    error
}

// NewRecorder keeps events in memory. now is the clock.
func NewRecorder(proc string, now func() int64) *Recorder {
	return &Recorder{proc: proc, now: now}
}

// Create makes a recorder that appends to a new file, on the machine's clock.
// Every event is one write: kill -9 costs at most the line it interrupts.
func Create(path, proc string) (*Recorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Recorder{proc: proc, now: Monotonic, file: file}, nil
}

// Monotonic reads CLOCK_MONOTONIC, which all processes of a machine share.
func Monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0 // never: the clock is there since Linux 2.6
	}
	return ts.Nano()
}

// Now reads the recorder's clock.
func (r *Recorder) Now() int64 { return r.now() }

// NextOp numbers an acquire.
func (r *Recorder) NextOp() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops++
	return r.ops
}

// Add stamps and keeps an event. Call it before the operation for what is
// asked, and after it for what was answered. Stamps of one recorder differ,
// also where the clock stands still between two events: their order is that in
// which they happened.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, r.now())
	e.At = r.last
	if e.Proc == "" {
		e.Proc = r.proc
	}
	if r.file == nil {
		r.events = append(r.events, e)
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

// Events returns what is kept in memory.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.events...)
}

// Close ends the log. The error is the first that kept an event from it.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return r.err
	}
	return errors.Join(r.err, r.file.Close())
}

// Read reads logs. A last line that is cut off is left out: its writer was
// killed.
func Read(paths ...string) (events []Event, err error) {
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		events, err = read(events, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return events, nil
}

func read(events []Event, from io.Reader) ([]Event, error) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("after %d events: %w", len(events), err)
		}
		events = append(events, e)
	}
}

// Write writes events as a log, for a person or another run to read.
func Write(path string, events []Event) error {
	var out []byte
	for i := range events {
		line, err := json.Marshal(events[i])
		if err != nil {
			return err
		}
		out = append(append(out, line...), '\n')
	}
	return os.WriteFile(path, out, 0o600)
}
