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

// readRecord reads {clock, record, PTTL, queue, fields of places, of holders}.
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
	case strings.HasPrefix(text, waitedForm) && len(fields) == 6:
		name = r.readWaited(text, now)
		r.readWaiters(&fields[3], &fields[4], now)
	case strings.HasPrefix(text, "hf1 q ") && len(fields) == 6:
		name = r.readFull(text[len("hf1 q "):], now, &fields[5])
		r.readWaiters(&fields[3], &fields[4], now)
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

// waitedForm begins the record of a plain exclusive holder for whom others wait: its
// first fields have fixed places.
const waitedForm = "hf1 w "

// waited is such a record.
type waited struct {
	owner, token, since, label, name string
	expires                          int64
}

// readWaited reads "hf1 w owner token expires last head quit since client label\nname".
func readWaited(text string) (w waited, ok bool) {
	line, name, _ := strings.Cut(text, "\n")
	const fixed = 110 // where since begins
	if len(line) < fixed || line[:len(waitedForm)] != waitedForm {
		return w, false
	}
	w.owner, w.token, w.name = line[6:38], line[39:55], name
	w.since, line, _ = strings.Cut(line[fixed:], " ")
	_, w.label, ok = strings.Cut(line, " ")
	expires, err := strconv.ParseInt(text[56:72], 10, 64)
	w.expires = expires
	return w, ok && err == nil
}

func (w *waited) holder(now int64) (h driver.Holder, ok bool) {
	token, err1 := strconv.ParseUint(w.token, 10, 63)
	since, err2 := strconv.ParseInt(w.since, 10, 64)
	if h.Owner, ok = readOwner(w.owner); !ok && w.owner != nobody || err1 != nil || err2 != nil {
		return h, false
	}
	h.Label, h.Token, h.Mode = w.label, token, driver.Exclusive
	h.Left, h.Held = max(0, micros(w.expires-now)), max(0, micros(now-since))
	return h, true
}

func (r *record) readWaited(text string, now int64) (name string) {
	w, ok := readWaited(text)
	if !ok {
		return ""
	}
	r.foreign, r.Mode = false, driver.Exclusive
	if h, ok := w.holder(now); ok && h.Left > 0 {
		r.Holders = append(r.Holders, h)
	}
	return w.name
}

// readFull reads any other form.
func (r *record) readFull(text string, now int64, holders *Reply) (name string) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 {
		return ""
	}
	head := strings.Fields(lines[0])
	if len(head) != 8 {
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

// readWaiters reads the places of the queue, without those that gave up, which are not
// among the numbers.
func (r *record) readWaiters(queue, numbers *Reply, now int64) {
	places := numbers.pairs()
	for i := range queue.List {
		text := queue.List[i].Text
		owner, _, _ := strings.Cut(text, " ")
		number, there := places[owner]
		if !there {
			continue
		}
		if w, alive, ok := readPlace(text, number, now); ok && alive {
			r.Waiters = append(r.Waiters, w)
		}
	}
}

// placeLife is how long a place counts that is not beaten.
const placeLife = 30 * time.Second

// readPlace reads "owner mode since claim n client label" and "number[ alive]".
func readPlace(text, number string, now int64) (w driver.Waiter, alive, ok bool) {
	f := strings.SplitN(text, " ", 7)
	if len(f) < 7 {
		return w, false, false
	}
	n, err1 := strconv.Atoi(f[4])
	since, err2 := strconv.ParseInt(f[2], 10, 64)
	owner, isOwner := readOwner(f[0])
	until := since + placeLife.Microseconds()
	if _, beaten, ok := strings.Cut(number, " "); ok {
		if at, err := strconv.ParseInt(beaten, 10, 64); err == nil {
			until = max(until, at)
		}
	}
	if err1 != nil || err2 != nil || !isOwner {
		return w, false, false
	}
	return driver.Waiter{Owner: owner, Label: f[6], Mode: modeOf(f[1]), Permits: n, Waited: max(0, micros(now-since))}, until > now, true
}

// nobody is the owner of a name that is kept taken after its release.
const nobody = "00000000000000000000000000000000"

func readOwner(text string) (o driver.Owner, ok bool) {
	if len(text) != 2*len(o) {
		return o, false
	}
	_, err := hex.Decode(o[:], []byte(text))
	return o, err == nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
