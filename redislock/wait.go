package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Options.Wait: a grant, renewal or value counts once so many replicas have received
// it. The WAIT follows the script on the same connection, as it counts what that
// one wrote; and on one of its own, as it blocks it. Between them a token is passed over:
// newer servers wait for nothing where the script found all as it should be, though that may be
// what was written a moment ago, by another connection, and no replica has yet.

// longestWait bounds the waiting for replicas, where ctx does not end before.
const longestWait = time.Second

// confirmed runs a script, and tells with nil that the replicas have what it wrote.
func (s *store) confirmed(ctx context.Context, sc *script, n int, call []string) (replies []Reply, shortage, err error) {
	if s.wait == 0 {
		replies, err = s.answersTo(ctx, sc, n, call)
		return replies, nil, err
	}
	patience := longestWait
	if end, ok := ctx.Deadline(); ok { // of which the script gets a half
		patience = min(patience, time.Until(end)/2)
	}
	tag, _, _ := strings.Cut(strings.TrimPrefix(call[3], "hf:"), ":")
	write := Command{Words: []string{"INCR", bucketKey(tag)}, Key: 1}
	wait := command("WAIT", strconv.Itoa(s.wait), strconv.FormatInt(max(1, patience.Milliseconds()), 10))
	all, err := s.run(ctx, sc, call, func(ctx context.Context, commands ...Command) ([]Reply, error) {
		if ended := ctx.Err(); ended != nil {
			return nil, notSent(ended)
		}
		return prompt(ctx, &s.hands, func(ctx context.Context) ([]Reply, error) {
			return s.link.DoApart(ctx, append(commands, write, wait)...), nil
		})
	})
	if err == nil && len(all[0].List) != n {
		err = errStrangeAnswer
	}
	if err != nil {
		return nil, nil, err
	}
	if acks := all[2]; acks.Err != nil {
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
// itself, by a look at each.
func (s *store) confirmBeats(ctx context.Context, places []driver.Ref, results []driver.BeatResult) {
	if s.wait == 0 {
		return
	}
	var reqs []driver.RenewRequest
	var of []int
	for i := range results {
		switch results[i].Status {
		case driver.Granted:
			ref := places[i]
			ref.Token = results[i].Grant.Token
			reqs = append(reqs, driver.RenewRequest{Ref: ref})
			of = append(of, i)
		case driver.Gone:
			s.waits.leave(places[i].Owner)
		case driver.Waiting, driver.Held:
		}
	}
	if len(reqs) == 0 {
		return
	}
	for k, res := range s.Renew(ctx, reqs) {
		i := of[k]
		s.waits.leave(places[i].Owner)
		switch {
		case res.Err != nil:
			results[i] = driver.BeatResult{Err: s.takeBack(ctx, places[i], res.Err)}
		case res.Status == driver.Lost:
			results[i] = driver.BeatResult{Status: driver.Gone}
		}
	}
}

// confirmSignal is for a grant that a message told of: it is told on when the replicas have
// it. If they do not get it, the place is gone, and the next beat says so.
func (s *store) confirmSignal(sig driver.Signal) {
	place, ok := s.waits.leave(sig.Owner)
	if !ok || s.ears.life.Err() != nil {
		return
	}
	s.ears.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ears.life, 2*longestWait)
		defer cancel()
		results := []driver.BeatResult{{Status: driver.Granted, Grant: sig.Grant}}
		s.confirmBeats(ctx, []driver.Ref{place}, results)
		if sig.Grant = results[0].Grant; results[0].Status != driver.Granted {
			sig = driver.Signal{Kind: driver.MissedSignal}
		}
		s.ears.tell(sig)
	})
}

// waits are the places of a client with Options.Wait, as a message tells only the owner.
type waits struct {
	mu sync.Mutex
	of map[driver.Owner]driver.Ref
}

// enter is for attempts that may take places: before them, as the message may overtake
// the answer. Those that took none leave by what it returns.
func (w *waits) enter(s *store, reqs []*driver.AcquireRequest, answers []driver.AcquireAnswer) (answered func()) {
	if s.wait == 0 {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, req := range reqs {
		if req.Queue {
			w.of[req.Owner] = driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}
		}
	}
	return func() {
		for i := range answers {
			if answers[i].Err != nil || answers[i].Status != driver.Waiting {
				w.leave(reqs[i].Owner)
			}
		}
	}
}

// leave tells whether the owner had a place.
func (w *waits) leave(owner driver.Owner) (place driver.Ref, had bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	place, had = w.of[owner]
	delete(w.of, owner)
	return place, had
}
