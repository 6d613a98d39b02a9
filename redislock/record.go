package redislock

import (
	"cmp"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// record is what the server has written of a name; docs/wire.md has the form.
type record struct {
	driver.Record
	prefix  string
	foreign bool // not written by us
}

// errStop ends a listing that its reader has left.
var errStop = errors.New("stop")

func isStop(err error) bool { return errors.Is(err, errStop) }

func modeOf(kind string) driver.Mode {
	switch kind {
	case "s":
		return driver.Shared
	case "p":
		return driver.Permits
	}
	return driver.Exclusive
}

// readRecord reads {clock, record, PTTL, queue fields, holder fields}.
func readRecord(key string, fields []Reply) record {
	r := record{foreign: true}
	if len(fields) < 3 {
		return r
	}
	now, err := strconv.ParseInt(fields[0].Text, 10, 64)
	text, pttl := fields[1].Text, fields[2].Int
	if err != nil {
		return r
	}
	var name string
	switch {
	case strings.HasPrefix(text, "hf1 x "):
		name = r.readSimple(text[len("hf1 x "):], now, pttl)
	case strings.HasPrefix(text, "hf1 q ") && len(fields) == 5:
		name = r.readFull(text[len("hf1 q "):], now, &fields[3], &fields[4])
	}
	if r.foreign {
		return r
	}
	if name = r.cutValue(name); name == "" { // the key tells
		_, name, _ = strings.Cut(key, "}:")
	}
	r.prefix, r.Name, _ = strings.Cut(name, ":")
	return r
}

// readSimple reads "owner token since client label[\nname]": an exclusive holder for
// whom nobody waits, whose lease is the record's own expiry.
func (r *record) readSimple(text string, now, pttl int64) (name string) {
	line, name, _ := strings.Cut(text, "\n")
	f := strings.SplitN(line, " ", 5)
	if len(f) < 5 {
		return ""
	}
	ends := now + pttl*1000
	if f[1] == "0" { // the token is not known yet; then this is the TTL
		ttl, _ := strconv.ParseInt(f[2], 10, 64)
		f[2] = strconv.FormatInt(ends-ttl*1000, 10)
	}
	h, ok := readHolder(f[0], strings.Join([]string{f[1], f[2], f[3], strconv.FormatInt(ends, 10), "0", f[4]}, " ")+"\n", driver.Exclusive, now)
	if !ok {
		return ""
	}
	r.foreign, r.Mode, r.Holders = false, driver.Exclusive, []driver.Holder{h}
	return name
}

// readFull reads the other form.
func (r *record) readFull(text string, now int64, queue, holders *Reply) (name string) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 {
		return ""
	}
	head := strings.Fields(lines[0])
	if len(head) != 9 {
		return ""
	}
	limit, err := strconv.Atoi(head[1])
	if err != nil {
		return ""
	}
	r.foreign, r.Limit = false, limit
	if r.Mode = modeOf(head[0]); limit > 0 {
		r.Mode = driver.Permits
	}
	switch head[0] {
	case "x":
		if f := strings.SplitN(lines[1], " ", 6); len(f) == 6 {
			h, ok := readHolder(f[0], strings.Join(append(f[1:5:5], "0", f[5]), " ")+"\n"+lines[2], driver.Exclusive, now)
			if ok && h.Left > 0 {
				r.Holders = append(r.Holders, h)
			}
		}
	case "s", "p":
		r.readHolders(holders, modeOf(head[0]), now)
	}
	r.readWaiters(queue, now)
	return lines[3]
}

func (r *record) readHolders(holders *Reply, mode driver.Mode, now int64) {
	for owner, text := range holders.pairs() {
		if h, ok := readHolder(owner, text, mode, now); ok && h.Left > 0 {
			r.Holders = append(r.Holders, h)
		}
	}
	slices.SortFunc(r.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) })
}

// readHolder reads "token since client expires n label\nbroken".
func readHolder(owner, text string, mode driver.Mode, now int64) (h driver.Holder, ok bool) {
	line, broken, _ := strings.Cut(text, "\n")
	f := strings.SplitN(line, " ", 6)
	if len(f) < 6 {
		return h, false
	}
	token, err1 := strconv.ParseUint(f[0], 10, 63)
	since, err2 := strconv.ParseInt(f[1], 10, 64)
	expires, err3 := strconv.ParseInt(f[3], 10, 64)
	n, err4 := strconv.Atoi(f[4])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return h, false
	}
	if !strings.HasPrefix(owner, "-") { // else it was released, and is kept taken
		if h.Owner, ok = readOwner(owner); !ok {
			return h, false
		}
	}
	h.Label, h.Token, h.Mode, h.Permits = f[5], token, mode, n
	h.Broken = strings.TrimPrefix(broken, "!")
	h.Left = max(0, micros(expires-now))
	h.Held = max(0, micros(now-since))
	return h, true
}

func (r *record) readWaiters(queue *Reply, now int64) {
	places := map[int]driver.Waiter{}
	for field, text := range queue.pairs() {
		seq, err := strconv.Atoi(field)
		if err != nil { // an index of them by owner
			continue
		}
		if w, alive, ok := readPlace(text, now); ok && alive {
			places[seq] = w
		}
	}
	seqs := make([]int, 0, len(places))
	for seq := range places {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		r.Waiters = append(r.Waiters, places[seq])
	}
}

// readPlace reads "owner mode n claim client alive since label".
func readPlace(text string, now int64) (w driver.Waiter, alive, ok bool) {
	f := strings.SplitN(text, " ", 8)
	if len(f) < 8 {
		return w, false, false
	}
	n, err1 := strconv.Atoi(f[2])
	until, err2 := strconv.ParseInt(f[5], 10, 64)
	since, err3 := strconv.ParseInt(f[6], 10, 64)
	owner, isOwner := readOwner(f[0])
	if err1 != nil || err2 != nil || err3 != nil || !isOwner {
		return w, false, false
	}
	return driver.Waiter{Owner: owner, Label: f[7], Mode: modeOf(f[1]), Permits: n, Waited: max(0, micros(now-since))}, until > now, true
}

func readOwner(text string) (o driver.Owner, ok bool) {
	if len(text) != 2*len(o) {
		return o, false
	}
	_, err := hex.Decode(o[:], []byte(text))
	return o, err == nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
