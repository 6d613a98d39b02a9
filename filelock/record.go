//go:build linux || darwin

package filelock

import (
	"bytes"
	"math"
	"strconv"
	"strings"
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
//	4608   value of entry 0: what an exclusive holder says of itself
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
	nameSize   = valueOffset - nameOffset
	// valueOffset leaves room for the longest name and prefix, quoted.
	valueOffset = 4608
	valueSize   = slotOffset - valueOffset
	slotOffset  = 8192
	slotStride  = 2048
	maxSlots    = 1 << 16
	// maxQuoted is the longest name, quoted: each of 512 bytes as \\xHH.
	maxQuoted = 4*512 + 2

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
	case strings.HasPrefix(magic, string(bytes.TrimRight(b, "\x00"))):
		return h, headerDamaged // a first write that was cut short, or the file was
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
	if !ok1 || !ok2 || token != h.token || slots > maxSlots || limit > math.MaxInt32 || !goodCRC(b[headerCRC:], b[headerKind:headerSize]) {
		return header{token: h.token}, headerDamaged
	}
	h.limit, h.slots = int(limit), int(slots)
	return h, headerGood
}

// nameBlock is what tells people which name the file stands for.
func nameBlock(full, prefix string) []byte {
	text := "crc=00000000 name=" + quote(full, maxQuoted) + " prefix=" + quote(prefix, nameSize/8) + "\n"
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
