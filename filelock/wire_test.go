//go:build linux

package filelock

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// vectorOwner is the owner of the vectors in docs/wire.md.
var vectorOwner = driver.Owner{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

const vectorLabel = "web-1/4242 \"nightly\" ä\n\x00\x7f\xff\u200b"

// vectors are the blocks of docs/wire.md, as this code writes them.
func vectors() map[string][]byte {
	block := func(size int, put func([]byte)) []byte {
		b := make([]byte, size)
		put(b)
		return b
	}
	quoted := quote(vectorLabel, entrySize-1-entryLabel)
	return map[string][]byte{
		"header of a lock": block(headerSize, func(b []byte) { putHeader(b, header{kind: kindLock, token: 1767225600000000}) }),
		"header of a semaphore": block(headerSize, func(b []byte) {
			putHeader(b, header{kind: kindSemaphore, limit: 3, slots: 2, token: 1767225600000001})
		}),
		"exclusive entry": block(entrySize, func(b []byte) {
			putEntry(b, &entry{
				mode: driver.Exclusive, token: 1767225600000000, owner: vectorOwner, pid: 4242, boot: 86400000000000,
			}, quoted)
		}),
		"entry of a slot": block(entrySize, func(b []byte) {
			putEntry(b, &entry{
				mode: driver.Permits, token: 1767225600000001, permits: 2, owner: vectorOwner, pid: 4242, boot: 86400000000000,
			}, `""`)
		}),
		"entry of a free slot": block(entrySize, func(b []byte) { putEntry(b, &entry{free: true, mode: driver.Permits}, `""`) }),
		"break": block(breakSize, func(b []byte) {
			putBreak(b, &revocation{token: 1767225600000000, owner: vectorOwner, force: true, reason: "stuck (by ops)"})
		}),
		"value": block(valueSize, func(b []byte) {
			putValue(b, &value{token: 1767225600000000, owner: vectorOwner, seq: 2, text: `{"addr":"10.0.0.1:80"} ä`})
		}),
		"names": nameBlock("Draw 2026-11", "shop"),
		"floor": floorRecord{token: 1767225600000000, swept: 1767225600}.text(),
	}
}

// crcFrom is where the page says that a checksum begins; 0 if there is none.
func crcFrom(block []byte) int {
	if bytes.HasPrefix(block, []byte(magic)) {
		return 34
	}
	if bytes.HasPrefix(block, []byte("crc=")) {
		return crcSize
	}
	return 0
}

// crc32c follows the page, and not package crc32.
func crc32c(b []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range b {
		sum ^= uint32(c)
		for range 8 {
			sum = sum>>1 ^ 0x82F63B78*(sum&1)
		}
	}
	return ^sum
}

// The page is all that a program in another language has.
func TestWirePage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for what, block := range vectors() {
		if from := crcFrom(block); from > 0 {
			if sum := fmt.Sprintf("%08x", crc32c(block[from:])); !bytes.Contains(block, []byte("crc="+sum)) {
				t.Errorf("%s: the page's checksum is %s", what, sum)
			}
		}
		text := strings.TrimRight(string(block), " \n")
		if vector := what + ":\n" + text + "\n"; !strings.Contains(page, vector) {
			t.Errorf("docs/wire.md lacks this vector:\n%s", vector)
		}
	}
	at := func(offset, size int, form string) string { return fmt.Sprintf("| %d | %d | `%s", offset, size, form) }
	for _, row := range []string{
		at(0, len(magic), "holdfast-lock 1 "), at(headerCRC-4, 13, "crc="), at(headerKind-5, 10, "kind="),
		at(headerLimit-6, 17, "limit="), at(headerSlots-6, 12, "slots="), at(headerToken-6, 23, "token="),
		at(headerToken+17, headerSize-headerToken-17, " "),
		at(entryCRC-4, 13, "crc="), at(entryState-6, 11, "state="), at(entryMode-5, 15, "mode="),
		at(entryToken-6, 24, "token="), at(entryPermits-8, 19, "permits="), at(entryOwner-6, 39, "owner="),
		at(entryPid-4, 15, "pid="), at(entryBoot-5, 25, "boot="), at(entryLabel-6, entrySize-entryLabel+6, "label="),
		at(crcSize, 6, "break "), at(breakToken-6, 24, "token="), at(breakOwner-6, 39, "owner="),
		at(breakForce-6, 8, "force="), at(breakReason-7, breakSize-breakReason+7, "reason="),
		at(0, magicEnd, "holdfast-floor 1 "), at(floorAt-6, 24, "token="), at(sweptAt-6, 17, "swept="),
		at(crcSize, 6, "value "), at(valueToken-6, 24, "token="), at(valueOwner-6, 39, "owner="), at(valueSeq-4, 25, "seq="),
		at(valueText-5, valueSize-valueText+5, "text="), fmt.Sprintf("| %d | value", valueOffset), fmt.Sprintf("names | at most %d |", nameSize),
		fmt.Sprintf("at most %d bytes with its quotes), spaces", valueSize-1-valueText),
		"| 0 | header", fmt.Sprintf("| %d | entry", headerSize), fmt.Sprintf("| %d | break", stateSize),
		fmt.Sprintf("| %d | poke", pokeOffset), fmt.Sprintf("| %d | names", nameOffset), fmt.Sprintf("| %d + %d × (i − 1) |", slotOffset, slotStride),
		fmt.Sprintf("| %d | | who is parked", int64(crowdByte)), fmt.Sprintf("| %d | who writes a break", int64(breakByte)),
		fmt.Sprintf("at most %d bytes", entrySize-1-entryLabel), fmt.Sprintf("at most %d bytes", breakSize-1-breakReason),
		fmt.Sprintf("1 to %d", maxSlots), "0x82F63B78", fmt.Sprintf("from byte %d on", headerKind), fmt.Sprintf("3 to %d", slotByte+maxSlots),
	} {
		if !strings.Contains(page, row) {
			t.Errorf("docs/wire.md does not say %q", row)
		}
	}
}

// The vectors are what a grant and a break write, and what a look reads.
func TestWireVectors(t *testing.T) {
	t.Parallel()
	v := vectors()
	if h, state := parseHeader(v["header of a semaphore"]); state != headerGood || h != (header{kindSemaphore, 3, 2, 1767225600000001}) {
		t.Errorf("%+v", h)
	}
	if e, ok := parseEntry(v["exclusive entry"]); !ok || e.owner != vectorOwner || e.label != vectorLabel || e.boot != 86400000000000 {
		t.Errorf("%+v", e)
	}
	if r, ok := parseBreak(v["break"]); !ok || !r.force || r.owner != vectorOwner || r.reason != "stuck (by ops)" {
		t.Errorf("%+v", r)
	}
	if said, ok := parseValue(v["value"]); !ok || said.owner != vectorOwner || said.seq != 2 || said.text != `{"addr":"10.0.0.1:80"} ä` {
		t.Errorf("%+v", said)
	}
	c := openStore(t, t.TempDir(), nil)
	req := request("k", driver.Exclusive)
	req.Name.Full, req.Name.Prefix, req.Owner, req.Label = "Draw 2026-11", "shop", vectorOwner, vectorLabel
	if res, err := c.Acquire(t.Context(), req); err != nil || res.Status != driver.Granted {
		t.Fatal(res, err)
	}
	file, err := os.ReadFile(c.path + "/k.lock")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(file, v["names"]) || len(file) != nameOffset+len(v["names"]) {
		t.Errorf("%q", file[nameOffset:])
	}
	if e := file[headerSize : headerSize+entrySize]; !bytes.Equal(e[entryLabel:], v["exclusive entry"][entryLabel:]) {
		t.Errorf("%q", e)
	}
	// What another program wrote is believed.
	copy(file, v["header of a lock"])
	copy(file[headerSize:], v["exclusive entry"])
	copy(file[stateSize:], v["break"])
	if err := os.WriteFile(c.path+"/k.lock", file, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := c.Inspect(t.Context(), req.Name)
	if err != nil || len(r.Holders) != 1 || r.Holders[0].Token != 1767225600000000 || r.Holders[0].Broken != "stuck (by ops)" {
		t.Fatalf("%+v %v", r, err)
	}
}

// A number that is no int everywhere is no limit.
func TestHeaderWithTooLargeALimit(t *testing.T) {
	t.Parallel()
	b := make([]byte, headerSize)
	putHeader(b, header{kind: kindSemaphore, limit: 3, token: 42})
	copy(b[headerLimit:], "4294967299") // 3, in 32 bits
	putCRC(b[headerCRC:], b[headerKind:])
	if h, state := parseHeader(b); state != headerDamaged || h.token != 42 {
		t.Errorf("%+v %v", h, state)
	}
}
