package redislock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	force := ""
	if req.Force {
		force = "1"
	}
	replies, err := s.answers(ctx, breakScript, 1, allKeys(req.Name.Key), []string{tokenText(req.Token), ownerText(&req.Owner), oneLine(req.Reason), force})
	if err != nil {
		return 0, foreign(err, req.Name.Key)
	}
	switch text := replies[0].Text; text {
	case "M":
		return driver.Marked, nil
	case "F":
		return driver.Freed, nil
	case "N":
		return driver.NotHeld, nil
	case "X":
		return driver.Mismatch, nil
	default:
		return 0, strange(text)
	}
}

// tellForced says of grants that are lost whether a person has ended them by force, and
// why. The message of that may not have been heard: who never waited listens to none.
func (s *store) tellForced(ctx context.Context, reqs []driver.RenewRequest, results []driver.RenewResult) {
	var questions []Command
	var of []int
	for i := range results {
		if results[i].Err == nil && results[i].Status == driver.Lost {
			tomb := tombKey(tagOf(reqs[i].Name.Key), ownerText(&reqs[i].Owner))
			questions, of = append(questions, Command{Words: []string{"GET", tomb}, Key: 1}), append(of, i)
		}
	}
	if len(of) == 0 {
		return
	}
	replies, err := s.send(ctx, questions...)
	if err != nil {
		return // then they are lost without a reason
	}
	for k, i := range of {
		if reason, ok := strings.CutPrefix(replies[k].Text, "!"); ok {
			results[i].Reason = byForce + reason
		}
	}
}

const byForce = "broken by force: "

func (s *store) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	records, err := s.read(ctx, []string{recordKey(tagOf(n.Key), n.Key)})
	if err != nil {
		return driver.Record{}, err
	}
	r := records[0]
	if r.foreign {
		return driver.Record{}, foreignKey(n.Key)
	}
	r.Name = n.Full
	return r.Record, nil
}

// page is how many keys one step of a listing looks at.
const page = "500"

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		seen := map[string]bool{} // a scan may give a key twice
		masters, err := prompt(ctx, &s.hands, s.link.Masters)
		for _, node := range masters {
			if err == nil {
				err = s.listNode(ctx, node, prefix, seen, yield)
			}
		}
		if err != nil && !isStop(err) {
			yield(driver.Record{}, err)
		}
	}
}

// listNode yields the names on one node.
func (s *store) listNode(ctx context.Context, node Node, prefix string, seen map[string]bool, yield func(driver.Record, error) bool) error {
	for cursor := "0"; ; {
		if err := ctx.Err(); err != nil {
			return notSent(err)
		}
		scan, err := prompt(ctx, &s.hands, func(ctx context.Context) (Reply, error) {
			replies := node.Do(ctx, command("SCAN", cursor, "MATCH", "hf:{*", "COUNT", page))
			s.bare.hear(replies)
			return replies[0], replies[0].Err
		})
		if err != nil {
			return err
		}
		if len(scan.List) != 2 {
			return errors.New("redis: a strange answer to SCAN")
		}
		var keys []string
		for _, key := range scan.List[1].List {
			if isRecord(key.Text) {
				keys = append(keys, key.Text)
			}
		}
		if err := s.listPage(ctx, prefix, keys, seen, yield); err != nil {
			return err
		}
		if cursor = scan.List[0].Text; cursor == "0" {
			return nil
		}
	}
}

// isRecord tells whether a key is a name's, in its bucket. Others may be in any slot.
func isRecord(key string) bool {
	_, raw, ok := strings.Cut(key, "}:")
	return ok && key == recordKey(tagOf(raw), raw)
}

// listPage yields the names among some keys.
func (s *store) listPage(ctx context.Context, prefix string, keys []string, seen map[string]bool, yield func(driver.Record, error) bool) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { return seen[key] })
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for len(keys) > 0 {
		some := len(keys)
		if s.cluster { // those of one slot at a time
			some = sameBucket(keys)
		}
		records, err := s.read(ctx, keys[:some])
		if err != nil {
			return err
		}
		for i, r := range records {
			if seen[keys[i]] = true; r.foreign || r.prefix != prefix || len(r.Holders) == 0 && len(r.Waiters) == 0 {
				continue
			}
			if !yield(r.Record, nil) {
				return errStop
			}
		}
		keys = keys[some:]
	}
	return nil
}

// sameBucket is how many of sorted keys, from the first on, are of one bucket.
func sameBucket(keys []string) int {
	tag, _, _ := strings.Cut(keys[0], "}")
	if i := slices.IndexFunc(keys, func(key string) bool { return !strings.HasPrefix(key, tag+"}") }); i > 0 {
		return i
	}
	return len(keys)
}

// read reads the records under some keys.
func (s *store) read(ctx context.Context, keys []string) ([]record, error) {
	replies, err := s.answers(ctx, inspectScript, len(keys), keys, nil)
	if err != nil {
		return nil, err
	}
	records := make([]record, 0, len(keys))
	for i, key := range keys {
		r := record{}
		if fields := replies[i].List; len(fields) > 0 {
			r = readRecord(key, fields)
		}
		records = append(records, r)
	}
	return records, nil
}
