package redislock

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// SetValue implements [driver.Valuer]. A value that too few replicas have is there, and may
// be gone again.
func (s *store) SetValue(ctx context.Context, req *driver.ValueRequest) (held bool, err error) {
	keys := []string{recordKey(tagOf(req.Name.Key), req.Name.Key)}
	args := []string{ownerText(&req.Owner), tokenText(req.Token), strconv.FormatUint(req.Seq, 10), req.Value}
	replies, shortage, err := s.confirmed(ctx, valueScript, 1, scriptCall(valueScript, keys, args))
	if err != nil {
		return false, err
	}
	switch text := replies[0].Text; {
	case text == "L":
		return false, nil
	case text != "V":
		return false, strange(text)
	case shortage != nil:
		return true, failure(driver.Indeterminate, "the value may be forgotten: "+shortage.Error())
	}
	return true, nil
}

// leaderOnly asks the script that reads a record to leave the queue away.
var leaderOnly = []string{"1"}

// Leader implements [driver.Valuer]. Who leads is told by the record alone,
// however many wait.
func (s *store) Leader(ctx context.Context, n driver.Name) (*driver.Holder, error) {
	key := recordKey(tagOf(n.Key), n.Key)
	replies, err := s.answers(ctx, inspectScript, 1, []string{key}, leaderOnly)
	if err != nil || len(replies[0].List) == 0 {
		return nil, err
	}
	r := readRecord(key, replies[0].List)
	if r.foreign || len(r.Holders) != 1 || r.Holders[0].Mode != driver.Exclusive || r.Holders[0].Owner == (driver.Owner{}) {
		return nil, nil //nolint:nilnil // nobody leads
	}
	return &r.Holders[0], nil
}

// cutValue takes the value, "OWNER SEQ VALUE", off a name, and gives it to the
// holder whose it is.
func (r *record) cutValue(name string) string {
	name, text, _ := strings.Cut(name, "\x00")
	f := strings.SplitN(text, " ", 3)
	if len(f) < 3 || len(r.Holders) != 1 {
		return name
	}
	owner, ok := readOwner(f[0])
	seq, err := strconv.ParseUint(f[1], 10, 64)
	if h := &r.Holders[0]; ok && err == nil && h.Owner == owner && h.Mode == driver.Exclusive {
		h.Value, h.Seq = f[2], seq
	}
	return name
}
