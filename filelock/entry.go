//go:build linux || darwin

package filelock

import (
	"bytes"
	"encoding/hex"
	"math"

	"github.com/holdfast-go/holdfast/driver"
)

// entry is one grant.
type entry struct {
	free    bool // of a semaphore: given back
	mode    driver.Mode
	token   uint64
	permits int
	owner   driver.Owner
	pid     int
	boot    int64 // of the grant: the machine's boot time in ns
	label   string
}

const entryForm = "crc=00000000 state=held mode=exclusive token=00000000000000000 permits=0000000000 " +
	"owner=00000000000000000000000000000000 pid=0000000000 boot=0000000000000000000 label="

const (
	entryCRC     = len("crc=")
	entryBody    = crcSize
	entryState   = entryBody + len("state=")
	entryMode    = entryState + len("held mode=")
	entryToken   = entryMode + len("exclusive token=")
	entryPermits = entryToken + len("00000000000000000 permits=")
	entryOwner   = entryPermits + len("0000000000 owner=")
	entryPid     = entryOwner + len("00000000000000000000000000000000 pid=")
	entryBoot    = entryPid + len("0000000000 boot=")
	entryLabel   = entryBoot + len("0000000000000000000 label=")
)

var modeWords = [...]string{"", "exclusive", "shared   ", "permits  "}

// putEntry writes e; label is e.label, quoted.
func putEntry(b []byte, e *entry, label string) {
	b = b[:entrySize]
	form(b, entryForm)
	if e.free {
		copy(b[entryState:], "free")
	}
	copy(b[entryMode:], modeWords[e.mode])
	putDecimal(b[entryToken:entryToken+17], e.token)
	putDecimal(b[entryPermits:entryPermits+10], uint64(e.permits)) //nolint:gosec // positive
	hex.Encode(b[entryOwner:], e.owner[:])
	putDecimal(b[entryPid:entryPid+10], uint64(e.pid)) //nolint:gosec // positive
	putDecimal(b[entryBoot:entryBoot+19], uint64(max(e.boot, 0)))
	copy(b[entryLabel:entrySize-1], label)
	putCRC(b[entryCRC:], b[entryBody:])
}

func parseEntry(b []byte) (entry, bool) {
	var e entry
	if len(b) < entrySize || !bytes.HasPrefix(b, []byte("crc=")) || !goodCRC(b[entryCRC:], b[entryBody:entrySize]) {
		return e, false
	}
	token, ok1 := decimal(b[entryToken : entryToken+17])
	permits, ok2 := decimal(b[entryPermits : entryPermits+10])
	pid, ok3 := decimal(b[entryPid : entryPid+10])
	boot, ok4 := decimal(b[entryBoot : entryBoot+19])
	_, err := hex.Decode(e.owner[:], b[entryOwner:entryOwner+32])
	quoted, ok5 := unquoted(b[entryLabel:entrySize])
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || err != nil || token > maxToken || permits > math.MaxInt32 {
		return e, false
	}
	for m := driver.Exclusive; m <= driver.Permits; m++ {
		if string(b[entryMode:entryMode+9]) == modeWords[m] {
			e.mode = m
		}
	}
	e.free = string(b[entryState:entryState+4]) == "free"
	e.token, e.permits, e.pid, e.boot, e.label = token, int(permits), int(pid), int64(boot), quoted //nolint:gosec // digits
	return e, e.mode != 0
}

// revocation is a break: it concerns the grant with its token and owner only,
// so an old one harms nobody.
type revocation struct {
	token  uint64
	owner  driver.Owner
	force  bool
	reason string
}

const breakForm = "crc=00000000 break token=00000000000000000 owner=00000000000000000000000000000000 force=0 reason="

const (
	breakToken  = len("crc=00000000 break token=")
	breakOwner  = breakToken + len("00000000000000000 owner=")
	breakForce  = breakOwner + len("00000000000000000000000000000000 force=")
	breakReason = breakForce + len("0 reason=")
)

func putBreak(b []byte, r *revocation) {
	b = b[:breakSize]
	form(b, breakForm)
	putDecimal(b[breakToken:breakToken+17], r.token)
	hex.Encode(b[breakOwner:], r.owner[:])
	if r.force {
		b[breakForce] = '1'
	}
	copy(b[breakReason:breakSize-1], quote(r.reason, breakSize-1-breakReason))
	putCRC(b[entryCRC:], b[crcSize:])
}

func parseBreak(b []byte) (revocation, bool) {
	var r revocation
	if len(b) < breakSize || !bytes.HasPrefix(b, []byte("crc=")) || !goodCRC(b[entryCRC:], b[crcSize:breakSize]) {
		return r, false
	}
	token, ok1 := decimal(b[breakToken : breakToken+17])
	_, err := hex.Decode(r.owner[:], b[breakOwner:breakOwner+32])
	reason, ok2 := unquoted(b[breakReason:breakSize])
	r.token, r.force, r.reason = token, b[breakForce] == '1', reason
	return r, ok1 && ok2 && err == nil
}
