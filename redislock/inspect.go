package redislock

import (
	"context"
	"iter"
	"slices"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	tag, force := tagOf(req.Name.Key), ""
	if req.Force {
		force = "1"
	}
	keys := []string{recordKey(tag, req.Name.Key), bucketKey(tag)}
	messages, err := s.answers(ctx, breakScript, 1, keys, []string{tokenText(req.Token), ownerText(&req.Owner), oneLine(req.Reason), force})
	if err != nil {
		return 0, err
	}
	switch text, err := messages[0].ToString(); {
	case err != nil:
		return 0, err
	case text == "M":
		return driver.Marked, nil
	case text == "F":
		return driver.Freed, nil
	case text == "N":
		return driver.NotHeld, nil
	case text == "X":
		return driver.Mismatch, nil
	default:
		return 0, strange(text)
	}
}

func (s *store) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	records, err := s.read(ctx, []string{recordKey(tagOf(n.Key), n.Key)})
	if err != nil {
		return driver.Record{}, err
	}
	r := records[0]
	if r.foreign {
		return driver.Record{}, &driver.Failure{Kind: driver.Conflict, Err: serverError("the key of the name holds no record of ours")}
	}
	r.Name = n.Full
	return r.Record, nil
}

// page is how many keys one step of a listing looks at.
const page = 500

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		seen := map[string]bool{} // a scan may give a key twice
		for cursor := uint64(0); ; {
			scan, err := prompt(ctx, &s.hands, func(ctx context.Context) (rueidis.ScanEntry, error) {
				return s.client.Do(ctx, s.client.B().Scan().Cursor(cursor).Match("hf:{*").Count(page).Build()).AsScanEntry()
			})
			if err == nil {
				err = s.listPage(ctx, prefix, scan.Elements, seen, yield)
			}
			if err != nil {
				if !isStop(err) {
					yield(driver.Record{}, err)
				}
				return
			}
			if cursor = scan.Cursor; cursor == 0 {
				return
			}
		}
	}
}

// listPage yields the names among some keys.
func (s *store) listPage(ctx context.Context, prefix string, keys []string, seen map[string]bool, yield func(driver.Record, error) bool) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { return seen[key] })
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil
	}
	records, err := s.read(ctx, keys)
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
	return nil
}

// read reads the records under some keys.
func (s *store) read(ctx context.Context, keys []string) ([]record, error) {
	messages, err := s.answers(ctx, inspectScript, len(keys), keys, nil)
	if err != nil {
		return nil, err
	}
	records := make([]record, 0, len(keys))
	for i, key := range keys {
		fields, err := messages[i].ToArray()
		if err != nil {
			return nil, err
		}
		r := record{}
		if len(fields) > 0 {
			r = readRecord(key, fields)
		}
		records = append(records, r)
	}
	return records, nil
}
