//go:build linux || darwin

package filelock

import (
	"bytes"
	"hash/crc32"
	"strconv"
	"unicode/utf8"
)

// spaces is for form; no block is longer.
var spaces = bytes.Repeat([]byte(" "), valueSize)

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
