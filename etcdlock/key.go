package etcdlock

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// The keys of a name begin with one text, and no name's text is the beginning
// of another's: a portable key has no slash.
const (
	root = "hf/"  // hf/KEY/l/xSLOT, /l/sSLOT or /p/pSLOT: holders and waiters
	grim = "hfx/" // hfx/KEY/OWNER: tombstones
)

func nameKey(key string) string { return root + key + "/" }

// kindKey begins the keys of the locks, or of the permits, of a name.
func kindKey(key string, mode driver.Mode) string {
	if mode == driver.Permits {
		return root + key + "/p/"
	}
	return root + key + "/l/"
}

// slotKey is a key of a client's. Keys are used again when they are free: the
// cluster's index keeps every key that there was until it is compacted, and
// looks at all of a name's at each attempt.
func slotKey(key string, mode driver.Mode, client, slot uint64) string {
	return fmt.Sprintf("%s%s%016x%016x", kindKey(key, mode), letter(mode), client, slot)
}

func tombKey(key string, owner *driver.Owner) string {
	return grim + key + "/" + hex.EncodeToString(owner[:])
}

const writers = "x"

func letter(m driver.Mode) string {
	switch m {
	case driver.Shared:
		return "s"
	case driver.Permits:
		return "p"
	case driver.Exclusive:
	}
	return writers
}

// place is a key of ours with what its record says: a holder's or a waiter's.
// docs/wire.md has the form.
type place struct {
	key      string
	mode     driver.Mode
	owner    driver.Owner
	n, limit int
	since    int64 // milliseconds since 1970, by its client's clock
	label    string
	prefix   string
	name     string
	broken   string
	said     string // the value of a leader
	seq      uint64 // its number, 0: none
	kept     bool   // released, and taken by nobody yet

	created, modified int64
	lease             clientv3.LeaseID
}

// Values begin so, and go on with the mode's letter and the owner. A capital
// letter says that the place is kept, by nobody.
const form = "hf1 "

// value is what is written of a place.
func (p *place) value() string {
	var b strings.Builder
	b.WriteString(form)
	if p.kept {
		b.WriteString(strings.ToUpper(letter(p.mode)))
	} else {
		b.WriteString(letter(p.mode))
	}
	b.WriteString(" " + hex.EncodeToString(p.owner[:]))
	if p.mode == driver.Permits {
		b.WriteString(" " + strconv.Itoa(p.n) + "/" + strconv.Itoa(p.limit))
	}
	b.WriteString(" " + strconv.FormatInt(p.since, 10) + " " + oneLine(p.label))
	if prefix, name, ok := namesOf(p.key); !ok || prefix != p.prefix || name != p.name {
		b.WriteString("\n=" + p.prefix + ":" + p.name)
	}
	if p.seq > 0 {
		b.WriteString("\n@" + strconv.FormatUint(p.seq, 10) + " " + p.said)
	}
	if p.broken != "" {
		b.WriteString("\n!" + oneLine(p.broken))
	}
	return b.String()
}

// owned compares that the record under a key is an owner's, and not kept.
func owned(key string, mode driver.Mode, owner *driver.Owner) []clientv3.Cmp {
	begin := form + letter(mode) + " " + hex.EncodeToString(owner[:])
	return []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), ">", begin), clientv3.Compare(clientv3.Value(key), "<", begin+"!")}
}

// newPlace is the place that a request asks for.
func newPlace(req *driver.AcquireRequest, key string) *place {
	return &place{
		key: key, mode: req.Mode, owner: req.Owner, n: req.N, limit: req.Limit,
		since: time.Now().UnixMilli(), label: req.Label, prefix: req.Name.Prefix, name: req.Name.Full,
	}
}

// readPlace reads a key and its value; false if they are not ours.
func readPlace(kv *mvccpb.KeyValue) (*place, bool) {
	p := &place{key: string(kv.Key), created: kv.CreateRevision, modified: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}
	if !p.readKey() {
		return nil, false
	}
	text, ok := strings.CutPrefix(string(kv.Value), form)
	if !ok {
		return nil, false
	}
	line, more, _ := strings.Cut(text, "\n")
	fields := 4
	if p.mode == driver.Permits {
		fields++
	}
	f := strings.SplitN(line, " ", fields)
	if len(f) != fields || !p.readOwner(f[0], f[1]) {
		return nil, false
	}
	if f = f[2:]; p.mode == driver.Permits {
		if !p.readPermits(f[0]) {
			return nil, false
		}
		f = f[1:]
	}
	var err error
	if p.since, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return nil, false
	}
	p.label = f[1]
	p.readMore(more)
	return p, true
}

func (p *place) readOwner(mode, owner string) bool {
	l := letter(p.mode)
	if p.kept = mode == strings.ToUpper(l); !p.kept && mode != l {
		return false
	}
	return readHex(p.owner[:], owner)
}

func readHex(into []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(into)) {
		return false
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

func (p *place) readKey() bool {
	rest, ok := strings.CutPrefix(p.key, root)
	if !ok {
		return false
	}
	f := strings.Split(rest, "/")
	var slot [16]byte
	if len(f) != 3 || f[2] == "" || !readHex(slot[:], f[2][1:]) {
		return false
	}
	switch f[1] + "/" + f[2][:1] {
	case "l/x":
		p.mode = driver.Exclusive
	case "l/s":
		p.mode = driver.Shared
	case "p/p":
		p.mode = driver.Permits
	default:
		return false
	}
	return true
}

func (p *place) readPermits(text string) bool {
	n, limit, ok := strings.Cut(text, "/")
	var err1, err2 error
	p.n, err1 = strconv.Atoi(n)
	p.limit, err2 = strconv.Atoi(limit)
	return ok && err1 == nil && err2 == nil && p.n > 0 && p.limit > 0
}

// readMore reads the lines after the first; unknown ones are of later versions.
func (p *place) readMore(text string) {
	p.prefix, p.name, _ = namesOf(p.key)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "="); ok {
			p.prefix, p.name, _ = strings.Cut(name, ":")
		} else if reason, ok := strings.CutPrefix(line, "!"); ok {
			p.broken = reason
		} else if value, ok := strings.CutPrefix(line, "@"); ok {
			seq, said, _ := strings.Cut(value, " ")
			if n, err := strconv.ParseUint(seq, 10, 64); err == nil {
				p.said, p.seq = said, n
			}
		}
	}
}

// namesOf reads prefix and name out of a key: PREFIX+NAME, with %xx for most
// bytes.
func namesOf(key string) (prefix, name string, ok bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(key, root), "/")
	prefix, name, ok = strings.Cut(text, "+")
	if !ok {
		return "", "", false
	}
	prefix, ok1 := unescape(prefix)
	name, ok2 := unescape(name)
	return prefix, name, ok1 && ok2
}

func unescape(text string) (string, bool) {
	if !strings.Contains(text, "%") {
		return text, true
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", false
		}
		n, err := hex.DecodeString(text[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b = append(b, n...)
		i += 2
	}
	return string(b), true
}

// escape is what holdfast makes of a prefix within a portable key.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + hex.EncodeToString([]byte{c}))
		}
	}
	return b.String()
}

// oneLine makes text for people fit into a record, whose lines have meanings.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, text)
}
