package redislock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Release(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
	a := s.ReleaseMany(ctx, []*driver.ReleaseRequest{req})[0]
	return a.Released, a.Err
}

func (s *store) ReleaseMany(ctx context.Context, reqs []*driver.ReleaseRequest) []driver.ReleaseAnswer {
	answers := make([]driver.ReleaseAnswer, len(reqs))
	replies, err := s.answersTo(ctx, releaseScript, len(reqs), s.releaseCall(reqs))
	for i := range reqs {
		if s.wait > 0 {
			s.waits.leave(reqs[i].Owner)
		}
		switch {
		case err != nil:
			answers[i].Err = err
		case replies[i].Text != "":
			answers[i].Err = strange(replies[i].Text)
		default:
			answers[i].Released = replies[i].Int > 0
		}
	}
	return answers
}

func (s *store) releaseCall(reqs []*driver.ReleaseRequest) []string {
	p := newPhrase()
	if !s.cluster && !slices.ContainsFunc(reqs, special) {
		p.script(releaseScript, len(reqs))
		for _, req := range reqs {
			p.record(tagOf(req.Name.Key), req.Name.Key)
		}
		for _, req := range reqs {
			p.part("hf1 x ").owner(&req.Owner).part(" 0 ").end()
			p.token(req.Token).end()
		}
		return p.words()
	}
	p.script(releaseScript, 3*len(reqs))
	for _, req := range reqs {
		tag := tagOf(req.Name.Key)
		p.record(tag, req.Name.Key)
		p.bucket(tag)
		p.tomb(tag, &req.Owner)
	}
	for _, req := range reqs {
		p.owner(&req.Owner).end()
		p.token(req.Token).end()
		p.millis(req.Keep).end()
		if req.Abandon {
			p.part("1")
		}
		p.end()
	}
	return p.words()
}

// special tells whether a release asks for more than an end.
func special(req *driver.ReleaseRequest) bool { return req.Abandon || req.Keep > 0 }

func (s *store) Renew(ctx context.Context, reqs []driver.RenewRequest) []driver.RenewResult {
	results := make([]driver.RenewResult, len(reqs))
	keys, args := make([]string, 0, len(reqs)), make([]string, 0, 4*len(reqs))
	for i := range reqs {
		req := &reqs[i]
		keys = append(keys, recordKey(tagOf(req.Name.Key), req.Name.Key))
		args = append(args, ownerText(&req.Owner), tokenText(req.Token), millis(req.TTL), oneLine(req.Label))
	}
	texts, shortage, err := s.confirmed(ctx, renewScript, len(reqs), scriptCall(renewScript, keys, args))
	for i := range reqs {
		if results[i].Err = err; err != nil {
			continue
		}
		results[i] = readRenew(texts[i].Text)
		if shortage != nil && results[i].Status == driver.Renewed {
			results[i] = driver.RenewResult{Err: failure(driver.Unavailable, "the renewal does not count: "+shortage.Error())}
		}
	}
	s.tellForced(ctx, reqs, results)
	s.lookAtClocks()
	return results
}

// readRenew reads "R ms", "L" or "B ms reason".
func readRenew(text string) (res driver.RenewResult) {
	kind, rest := cutKind(text)
	ms, reason, _ := strings.Cut(rest, " ")
	left, err := strconv.ParseInt(ms, 10, 64)
	res.Window = time.Duration(left) * time.Millisecond
	switch {
	case kind == 'L':
		res.Status = driver.Lost
	case kind == 'R' && err == nil:
		res.Status = driver.Renewed
	case kind == 'B' && err == nil:
		res.Status, res.Reason = driver.Broken, reason
	default:
		res.Err = strange(text)
	}
	return res
}
