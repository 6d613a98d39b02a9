//go:build linux || darwin

package filelock

import (
	"bytes"
	"context"
	"encoding/hex"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// value is what an exclusive holder says of itself: it concerns the grant with
// its token and owner only, so an old one says nothing.
type value struct {
	token uint64
	owner driver.Owner
	seq   uint64
	text  string
}

const valueForm = "crc=00000000 value token=00000000000000000 owner=00000000000000000000000000000000 seq=00000000000000000000 text="

const (
	valueToken = len("crc=00000000 value token=")
	valueOwner = valueToken + len("00000000000000000 owner=")
	valueSeq   = valueOwner + len("00000000000000000000000000000000 seq=")
	valueText  = valueSeq + len("00000000000000000000 text=")
)

// putValue writes a value; text without control characters always fits.
func putValue(b []byte, v *value) {
	b = b[:valueSize]
	form(b, valueForm)
	putDecimal(b[valueToken:valueToken+17], v.token)
	hex.Encode(b[valueOwner:], v.owner[:])
	putDecimal(b[valueSeq:valueSeq+20], v.seq)
	copy(b[valueText:valueSize-1], quote(v.text, valueSize-1-valueText))
	putCRC(b[entryCRC:], b[crcSize:])
}

func parseValue(b []byte) (value, bool) {
	var v value
	if len(b) < valueSize || !bytes.HasPrefix(b, []byte("crc=")) || !goodCRC(b[entryCRC:], b[crcSize:valueSize]) {
		return v, false
	}
	token, ok1 := decimal(b[valueToken : valueToken+17])
	_, err := hex.Decode(v.owner[:], b[valueOwner:valueOwner+32])
	seq, ok2 := decimal(b[valueSeq : valueSeq+20])
	text, ok3 := unquoted(b[valueText:valueSize])
	v.token, v.seq, v.text = token, seq, text
	return v, ok1 && ok2 && ok3 && err == nil
}

// SetValue implements [driver.Valuer]. The record is the holder's own to write.
func (s *store) SetValue(ctx context.Context, req *driver.ValueRequest) (held bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	s.mu.Lock() // as in renew
	defer s.mu.Unlock()
	f := s.held[req.Owner]
	if f == nil || f.mode != driver.Exclusive || !f.is(&req.Ref) {
		return false, nil
	}
	if named, err := f.named(); err != nil || !named { // forced out
		return false, err
	}
	if req.Seq <= f.said {
		return true, nil
	}
	var b [valueSize]byte
	putValue(b[:], &value{token: f.token, owner: f.owner, seq: req.Seq, text: req.Value})
	if err := f.write(b[:], valueOffset); err != nil {
		return false, err
	}
	f.said = req.Seq
	return true, nil
}

// Leader implements [driver.Valuer]. In the instant between a holder's lock and
// his record it still shows the one before.
func (s *store) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	f, err := s.openToLook(n.Key, syscall.O_RDONLY)
	if err != nil || f == nil {
		return nil, err
	}
	defer f.close()
	seen, err := f.look(1)
	if err != nil || len(seen.holders) == 0 || seen.holders[0].mode != driver.Exclusive || !seen.holders[0].readable {
		return nil, err
	}
	holder := &seen.holders[0]
	err = f.lookAtValue(holder)
	h := s.holder(holder)
	return &h, err
}

// lookAtValue adds to an exclusive holder what it says.
func (f *file) lookAtValue(h *holder) error {
	var b [valueSize]byte
	for range tornTries {
		got, err := readAt(f.fd, b[:], valueOffset)
		switch {
		case err != nil:
			return f.failure("read", err)
		case allZero(got): // nobody spoke yet
			return nil
		}
		if v, ok := parseValue(got); ok {
			if v.token == h.token && v.owner == h.owner {
				h.value, h.said = v.text, v.seq
			}
			return nil
		}
	}
	return nil // torn by a crash of the machine
}
