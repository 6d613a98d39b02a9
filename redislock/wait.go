package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Options.Wait: a grant or renewal counts once so many replicas have received
// it. The WAIT follows the script on the same connection, as it counts what that
// one wrote; and on one of its own, as it blocks it.

// longestWait bounds the waiting for replicas, where ctx does not end before.
const longestWait = time.Second

// confirmed runs a script, and tells with nil that the replicas have what it wrote.
func (s *store) confirmed(ctx context.Context, sc *script, n int, keys, args []string) (replies []Reply, shortage, err error) {
	if s.wait == 0 {
		replies, err = s.answers(ctx, sc, n, keys, args)
		return replies, nil, err
	}
	patience := longestWait
	if end, ok := ctx.Deadline(); ok { // of which the script gets a half
		patience = min(patience, time.Until(end)/2)
	}
	wait := command("WAIT", strconv.Itoa(s.wait), strconv.FormatInt(max(1, patience.Milliseconds()), 10))
	all, err := s.run(ctx, sc, keys, args, func(ctx context.Context, commands ...Command) ([]Reply, error) {
		if ended := ctx.Err(); ended != nil {
			return nil, notSent(ended)
		}
		return prompt(ctx, &s.hands, func(ctx context.Context) ([]Reply, error) {
			return s.link.DoApart(ctx, append(commands, wait)...), nil
		})
	})
	if err == nil && len(all[0].List) != n {
		err = errStrangeAnswer
	}
	if err != nil {
		return nil, nil, err
	}
	if acks := all[1]; acks.Err != nil {
		shortage = acks.Err
	} else if acks.Int < int64(s.wait) {
		shortage = fmt.Errorf("%d of %d replicas have received it", acks.Int, s.wait)
	}
	return all[0].List, shortage, nil
}

// takeBack releases a grant that too few replicas have, and tells the error: it is
// surely not held any more, or it may be.
func (s *store) takeBack(ctx context.Context, ref driver.Ref, shortage error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestWait)
	defer cancel()
	kind := driver.Unavailable
	if _, err := s.Release(ctx, &driver.ReleaseRequest{Ref: ref, Abandon: true}); err != nil {
		kind = driver.Indeterminate
	}
	return failure(kind, "the grant was given back: "+shortage.Error())
}

// confirmBeats does for places that others' releases granted what an attempt does for
// itself: a renewal of each, so that there is something to wait for.
func (s *store) confirmBeats(ctx context.Context, places []driver.Ref, results []driver.BeatResult) {
	if s.wait == 0 {
		return
	}
	var reqs []driver.RenewRequest
	var of []int
	for i := range results {
		if results[i].Status == driver.Granted {
			ref := places[i]
			ref.Token = results[i].Grant.Token
			reqs = append(reqs, driver.RenewRequest{Ref: ref, TTL: results[i].Grant.Window + longestWait}) // longer: it writes
			of = append(of, i)
		}
	}
	if len(reqs) == 0 {
		return
	}
	for k, res := range s.Renew(ctx, reqs) {
		switch i := of[k]; {
		case res.Err != nil:
			results[i] = driver.BeatResult{Err: s.takeBack(ctx, places[i], res.Err)}
		case res.Status == driver.Lost:
			results[i] = driver.BeatResult{Status: driver.Gone}
		}
	}
}
