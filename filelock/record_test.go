//go:build linux

package filelock

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func FuzzParse(f *testing.F) {
	page := make([]byte, slotOffset)
	putHeader(page, header{kind: kindSemaphore, limit: 3, slots: 2, token: maxToken})
	putEntry(page[headerSize:], &entry{mode: driver.Shared, token: 7, label: "x"}, `"x"`)
	putBreak(page[stateSize:], &revocation{token: 7, force: true, reason: "why"})
	copy(page[nameOffset:], nameBlock("name", "prefix"))
	f.Add(page)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, state := parseHeader(b); h.token > maxToken || h.slots > maxSlots || state == headerGood && h.limit < 0 {
			t.Fatalf("%+v %v", h, state)
		}
		for off := 0; off <= len(b) && off < 4096; off += 64 {
			if e, ok := parseEntry(b[off:]); ok && (e.mode == 0 || e.token > maxToken) {
				t.Fatalf("%+v", e)
			}
			parseBreak(b[off:])
			parseNames(b[off:])
			parseSlot(b[off:])
		}
	})
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "orders/42", "quote \" and \\ and\nline", "漢字 ä", "\x00\x01", strings.Repeat("\x01", 512)} {
		full, prefix, ok := parseNames(append(nameBlock(text, "p"), make([]byte, 100)...))
		if !ok || full != text || prefix != "p" {
			t.Errorf("%q: %q %q %v", text, full, prefix, ok)
		}
		b := make([]byte, breakSize)
		in := revocation{token: maxToken, owner: newOwner(), force: true, reason: text}
		putBreak(b, &in)
		if out, ok := parseBreak(b); !ok || out.token != in.token || out.owner != in.owner || !strings.HasPrefix(text, out.reason) {
			t.Errorf("%q: %+v", text, out)
		}
	}
	in := entry{mode: driver.Permits, token: maxToken, permits: 1 << 30, owner: newOwner(), pid: 1 << 22, boot: 1 << 62, label: "host/1/x"}
	b := make([]byte, entrySize)
	putEntry(b, &in, quote(in.label, 100))
	if out, ok := parseEntry(b); !ok || out != in {
		t.Errorf("%+v\n%+v", out, in)
	}
	h := header{kind: kindSemaphore, limit: 1 << 30, slots: maxSlots, token: maxToken}
	putHeader(b, h)
	if out, state := parseHeader(b); state != headerGood || out != h {
		t.Errorf("%+v", out)
	}
}

// A block of which only a part was written must not be believed.
func TestTornRecord(t *testing.T) {
	t.Parallel()
	older, newer := make([]byte, entrySize), make([]byte, entrySize)
	putEntry(older, &entry{mode: driver.Shared, token: 1111, pid: 1, boot: 5, owner: newOwner()}, `"one"`)
	putEntry(newer, &entry{mode: driver.Exclusive, token: 2222, pid: 2, boot: 6, owner: newOwner()}, `"another one"`)
	for range 1000 {
		cut := 1 + rand.IntN(entrySize-1)
		torn := append(append([]byte{}, newer[:cut]...), older[cut:]...)
		if string(torn) == string(newer) || string(torn) == string(older) {
			continue
		}
		if e, ok := parseEntry(torn); ok {
			t.Fatalf("cut at %d: believed %+v", cut, e)
		}
	}
	b := make([]byte, headerSize)
	putHeader(b, header{kind: kindLock, token: 42})
	for cut := range headerSize {
		if _, state := parseHeader(b[:cut]); state != headerDamaged && (cut > 0 || state != headerNew) {
			t.Fatalf("cut at %d: %v", cut, state)
		}
	}
}
