//go:build linux || darwin

package filelock

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// A lock file is text in blocks at fixed offsets, each with fields at fixed
// offsets and a checksum, so that a block that was read while it was written
// is never misread:
//
//	0      header: kind, limit and the token of the last grant
//	128    entry 0: the last exclusive grant, held if the lock byte is write-locked
//	640    break of entry 0
//	2047   the byte that wakes waiters, by being written
//	2048   names
//	8192   slot 1: an entry and its break; held if the slot's byte is locked
//	10240  slot 2 …
//
// Nothing here says that somebody holds the name: only the locks do. So there
// is nothing to clean up after a crash. (A semaphore's entry that is freed is
// marked so, to spare others the question.)
const (
	headerSize = 128
	entrySize  = 512
	breakSize  = 1024
	stateSize  = headerSize + entrySize // what an exclusive grant writes
	pokeOffset = 2047
	nameOffset = 2048
	nameSize   = slotOffset - nameOffset
	slotOffset = 8192
	slotStride = 2048
	maxSlots   = 1 << 16

	// magic ends in the format's version.
	magic     = "holdfast-lock 1 "
	magicAnyV = "holdfast-lock "
	maxToken  = 1<<55 - 1
	crcSize   = len("crc=00000000 ")
)

type kind byte

const (
	kindNone kind = iota // nobody was here yet
	kindLock
	kindSemaphore
)

var kindWords = [...]string{"none", "lock", "sema"}

// header is the first block.
type header struct {
	kind  kind
	limit int
	slots int // highest slot that may be in use
	token uint64
}

const headerForm = magic + "crc=00000000 kind=none limit=0000000000 slots=00000 token=00000000000000000"

// The offsets of the header's fields.
const (
	headerCRC   = len(magic) + len("crc=")
	headerKind  = len(magic) + len("crc=00000000 kind=")
	headerLimit = headerKind + len("none limit=")
	headerSlots = headerLimit + len("0000000000 slots=")
	headerToken = headerSlots + len("00000 token=")
)

func putHeader(b []byte, h header) {
	form(b[:headerSize], headerForm)
	copy(b[headerKind:], kindWords[h.kind])
	putDecimal(b[headerLimit:headerLimit+10], uint64(h.limit)) //nolint:gosec // validated: positive
	putDecimal(b[headerSlots:headerSlots+5], uint64(h.slots))  //nolint:gosec // positive
	putDecimal(b[headerToken:headerToken+17], h.token)
	putCRC(b[headerCRC:], b[headerKind:headerSize])
}

// headerState is what the first bytes of a file turn out to be.
type headerState byte

const (
	headerGood    headerState = iota
	headerNew                 // empty, or zeros after a crash of the machine
	headerDamaged             // ours, but torn: only the token is kept, as far as it is one
	headerForeign
	headerOtherVersion
)

func parseHeader(b []byte) (header, headerState) {
	var h header
	switch {
	case allZero(b):
		return h, headerNew
	case len(b) < headerSize && strings.HasPrefix(magic, string(b[:min(len(b), len(magic))])):
		return h, headerDamaged // a first write that was cut short
	case !bytes.HasPrefix(b, []byte(magicAnyV)):
		return h, headerForeign
	case !bytes.HasPrefix(b, []byte(magic)):
		return h, headerOtherVersion
	case len(b) < headerSize:
		return h, headerDamaged
	}
	limit, ok1 := decimal(b[headerLimit : headerLimit+10])
	slots, ok2 := decimal(b[headerSlots : headerSlots+5])
	token, ok3 := decimal(b[headerToken : headerToken+17])
	if ok3 && token <= maxToken {
		h.token = token
	}
	for k, word := range kindWords {
		if string(b[headerKind:headerKind+4]) == word {
			h.kind = kind(k)
		}
	}
	if !ok1 || !ok2 || token != h.token || slots > maxSlots || !goodCRC(b[headerCRC:], b[headerKind:headerSize]) {
		return header{token: h.token}, headerDamaged
	}
	h.limit, h.slots = int(limit), int(slots) //nolint:gosec // ten digits
	return h, headerGood
}

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
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || err != nil || token > maxToken {
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

// nameBlock is what tells people which name the file stands for.
func nameBlock(full, prefix string) []byte {
	text := "crc=00000000 name=" + quote(full, nameSize/2) + " prefix=" + quote(prefix, nameSize/4) + "\n"
	b := []byte(text)
	putCRC(b[entryCRC:], b[crcSize:])
	return b
}

func parseNames(b []byte) (full, prefix string, ok bool) {
	line, _, ok := bytes.Cut(b, []byte("\n"))
	if !ok || len(line) < crcSize || !goodCRC(line[entryCRC:], b[crcSize:len(line)+1]) {
		return "", "", false
	}
	rest := string(line[crcSize:])
	for _, field := range []struct {
		key string
		to  *string
	}{{"name=", &full}, {"prefix=", &prefix}} {
		rest, ok = strings.CutPrefix(strings.TrimPrefix(rest, " "), field.key)
		quoted, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil {
			return "", "", false
		}
		*field.to, _ = strconv.Unquote(quoted)
		rest = rest[len(quoted):]
	}
	return full, prefix, true
}

// spaces is for form; no block is longer.
var spaces = bytes.Repeat([]byte(" "), breakSize)

// form fills a block with its empty form, spaces and a line's end.
func form(b []byte, text string) {
	n := copy(b, text)
	copy(b[n:], spaces)
	b[len(b)-1] = '\n'
}

func putDecimal(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

func decimal(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' || v > 1<<60 {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return v, true
}

func putCRC(b, body []byte) {
	const digits = "0123456789abcdef"
	sum := crc32.Checksum(body, castagnoli)
	for i := 7; i >= 0; i-- {
		b[i] = digits[sum&15]
		sum >>= 4
	}
}

// castagnoli is the polynomial that processors know.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func goodCRC(b, body []byte) bool {
	var want [8]byte
	putCRC(want[:], body)
	return bytes.Equal(b[:8], want[:])
}

// quote quotes s so that it takes at most limit bytes, cutting its end off if
// it must.
func quote(s string, limit int) string {
	for {
		q := strconv.Quote(s)
		if len(q) <= limit {
			return q
		}
		end := len(s) - max((len(q)-limit)/4, 1) // a byte takes four at most
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:max(end, 0)]
	}
}

func unquoted(b []byte) (string, bool) {
	quoted, err := strconv.QuotedPrefix(string(b))
	if err != nil {
		return "", false
	}
	s, err := strconv.Unquote(quoted)
	return s, err == nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
