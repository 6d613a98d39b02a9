package redislock

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// The uncontended path: two native commands in one flush, SET NX for the record
// and INCR for the token, at a third of what the script costs. Where it is not safe,
// and after any surprise, the script decides; docs/decisions says why.

// leastToken is what no bucket that a script has set to the clock is below: the
// clock's µs in 2001.
const leastToken = 1_000_000_000_000_000

// bare knows where tokens may be made by INCR alone.
type bare struct {
	// epochs holds for each bucket the epoch in which a script of ours set it to the
	// clock, since when INCR alone grows; 0: none, or a name of it was in use lately, so
	// that the script had better be asked at once.
	epochs [buckets]atomic.Uint64
	// seen has the largest token that was heard of each bucket.
	seen [buckets]atomic.Uint64
	// surprises are refusals, after which no bucket is trusted: the server may have
	// been a replica meanwhile, and have lost tokens.
	surprises atomic.Uint64
}

// saw notes a token of a bucket.
func (b *bare) saw(bucket int, token uint64) {
	for {
		last := b.seen[bucket].Load()
		if token <= last || b.seen[bucket].CompareAndSwap(last, token) {
			return
		}
	}
}

// hear looks for surprises in answers of any kind.
func (b *bare) hear(replies []Reply) {
	for i := range replies {
		if e, ok := replies[i].Err.(ServerError); ok && surprising(string(e)) { //nolint:errorlint // a Link gives it bare
			b.surprises.Add(1)
		}
		for k := range replies[i].List {
			if text := replies[i].List[k].Text; strings.HasPrefix(text, "!") && surprising(text) { // of one request in a batch
				b.surprises.Add(1)
			}
		}
	}
}

// surprising tells whether a server refuses in this way that is no master, or has
// just begun.
func surprising(refusal string) bool {
	return strings.Contains(refusal, "READONLY ") || strings.Contains(refusal, "LOADING ") || strings.Contains(refusal, "MASTERDOWN ")
}

// epoch grows when tokens may have been lost: when there is a new connection, of
// which the server may be another. 0: nobody knows, as where the client may go back
// to a server that it had before: behind Sentinel it dials the new master while the old one still
// answers.
func (s *store) epoch() uint64 {
	dials, told := s.link.Dials()
	if !told || s.link.Mode() != Single || s.wait > 0 {
		return 0
	}
	return dials + s.bare.surprises.Load()
}

// bareAttempts are those of a batch.
type bareAttempts struct {
	asked []bareAttempt
	rest  []int // by number, those that the script has to decide
	mine  []int // of these, those that have the name already, but no token
}

type bareAttempt struct {
	number int
	above  uint64 // what its token must be larger than
}

// acquireBare makes the attempts that it may.
func (s *store) acquireBare(ctx context.Context, reqs []*driver.AcquireRequest, answers []driver.AcquireAnswer) (a bareAttempts) {
	var commands []Command
	epoch := s.epoch()
	for i, req := range reqs {
		bucket := bucketOf(req.Name.Key)
		if !req.Bare || epoch == 0 || s.bare.epochs[bucket].Load() != epoch {
			a.rest = append(a.rest, i)
			continue
		}
		a.asked = append(a.asked, bareAttempt{i, s.bare.seen[bucket].Load()})
		if commands == nil {
			commands = make([]Command, 0, 2*len(reqs))
		}
		commands = s.bareCommands(commands, req)
	}
	if len(a.asked) == 0 {
		return a
	}
	replies, err := s.send(ctx, commands...)
	s.bare.compare(a.asked, replies)
	same := s.epoch() == epoch
	for k, asked := range a.asked {
		i := asked.number
		if err != nil {
			answers[i].Err = err
			continue
		}
		set, incr := &replies[2*k], &replies[2*k+1]
		switch {
		case set.Err != nil:
			answers[i].Err = set.Err
			s.bare.surprises.Add(1)
		case set.Null: // the name is in use
			a.rest = append(a.rest, i)
		case !same || incr.Err != nil:
			a.rest, a.mine = append(a.rest, i), append(a.mine, i)
		default:
			s.bare.saw(bucketOf(reqs[i].Name.Key), counted(incr))
			answers[i].Status = driver.Granted
			answers[i].Grant = driver.Grant{Token: counted(incr), Window: reqs[i].TTL, Bare: true}
		}
	}
	return a
}

// compare takes for a surprise that a bucket is below where it was seen, or where any
// can be. There are no replies if the call failed.
func (b *bare) compare(asked []bareAttempt, replies []Reply) {
	for k := 0; k < len(replies)/2; k++ {
		incr := &replies[2*k+1]
		if incr.Err == nil && counted(incr) <= max(asked[k].above, leastToken-1) {
			b.surprises.Add(1)
		}
	}
}

// counted is the token that INCR made.
func counted(incr *Reply) uint64 { return uint64(max(0, incr.Int)) }

// bareCommands adds the two commands of an attempt.
func (s *store) bareCommands(commands []Command, req *driver.AcquireRequest) []Command {
	p, tag := newPhrase(), tagOf(req.Name.Key)
	p.word("SET")
	p.record(tag, req.Name.Key)
	p.part("hf1 x ").owner(&req.Owner).part(" 0 ").millis(req.TTL).part(" ").part(s.id).part(" ").label(req).end()
	p.word("NX")
	p.word("PX")
	p.millis(req.TTL).end()
	p.word("INCR")
	p.bucket(tag)
	words := p.words()
	return append(commands, Command{Words: words[:6:6], Key: 1}, Command{Words: words[6:], Key: 1})
}

// learn notes what the script's answer tells of the bucket. epoch is from before
// the request.
func (s *store) learn(req *driver.AcquireRequest, epoch uint64, answer *driver.AcquireAnswer, minted bool) {
	if answer.Err == nil && answer.Status == driver.Granted {
		s.bare.saw(bucketOf(req.Name.Key), answer.Grant.Token)
	}
	switch {
	case answer.Err == nil && answer.Status == driver.Granted && minted:
		s.bare.epochs[bucketOf(req.Name.Key)].Store(epoch)
	case answer.Err == nil:
		s.bare.epochs[bucketOf(req.Name.Key)].Store(0)
	}
}
