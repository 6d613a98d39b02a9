package redislock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	results := make([]driver.BeatResult, len(places))
	keys, args := make([]string, 0, 5*len(places)), make([]string, 0, len(places))
	for i := range places {
		keys = append(keys, allKeys(places[i].Name.Key)...)
		args = append(args, ownerText(&places[i].Owner))
	}
	texts, err := s.answers(ctx, beatScript, len(places), keys, args)
	for i := range places {
		if results[i].Err = err; err != nil {
			continue
		}
		results[i] = readBeat(texts[i].Text)
		switch results[i].Status {
		case driver.Waiting:
			s.ears.of(tagOf(places[i].Name.Key)).plan(&results[i].Queue)
		case driver.Granted:
			s.bare.saw(bucketOf(places[i].Name.Key), results[i].Grant.Token)
		case driver.Held, driver.Gone:
		}
	}
	s.confirmBeats(ctx, places, results)
	s.lookAtClocks()
	return results
}

// readBeat reads "G token ms", "W" and what look tells, or "X".
func readBeat(text string) (res driver.BeatResult) {
	switch kind, rest := cutKind(text); kind {
	case 'G':
		res.Status = driver.Granted
		res.Grant, res.Err = readGrant(rest, 0)
	case 'W':
		res.Status = driver.Waiting
		res.Queue, res.Err = readQueue(rest)
	case 'X':
		res.Status = driver.Gone
	default:
		res.Err = strange(text)
	}
	return res
}

func (s *store) Listen(deliver func(driver.Signal)) { s.ears.deliver = deliver }
