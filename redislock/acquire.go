package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *store) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	a := s.AcquireMany(ctx, []*driver.AcquireRequest{req})[0]
	return a.AcquireResult, a.Err
}

func (s *store) AcquireMany(ctx context.Context, reqs []*driver.AcquireRequest) []driver.AcquireAnswer {
	answers := make([]driver.AcquireAnswer, len(reqs))
	a := s.acquireBare(ctx, reqs, answers)
	switch {
	case len(a.rest) == 0:
	case len(a.asked) == 0:
		s.acquireByScript(ctx, reqs, answers)
	default:
		rest, restAnswers := make([]*driver.AcquireRequest, len(a.rest)), make([]driver.AcquireAnswer, len(a.rest))
		for k, i := range a.rest {
			rest[k] = reqs[i]
		}
		s.acquireByScript(ctx, rest, restAnswers)
		for k, i := range a.rest {
			answers[i] = restAnswers[k]
		}
		for _, i := range a.mine {
			if err := answers[i].Err; err != nil { // whatever it says of the script, the record may be there
				answers[i].Err = &driver.Failure{Kind: driver.Indeterminate, Err: err}
			}
		}
	}
	for i, req := range reqs {
		answers[i].Err = foreign(answers[i].Err, req.Name.Key)
	}
	return answers
}

func (s *store) acquireByScript(ctx context.Context, reqs []*driver.AcquireRequest, answers []driver.AcquireAnswer) {
	ear, epoch := s.ears.of(tagOf(reqs[0].Name.Key)), s.epoch()
	listening := ear.listening()
	defer s.waits.enter(s, reqs, answers)()
	texts, shortage, err := s.confirmed(ctx, acquireScript, len(reqs), s.acquireCall(reqs))
	for i, req := range reqs {
		if answers[i].Err = err; err != nil {
			continue
		}
		text := texts[i].Text
		answers[i].AcquireResult, answers[i].Err = readAcquire(text, req)
		s.learn(req, epoch, &answers[i], !strings.Contains(text, " "))
		switch answers[i].Status {
		case driver.Waiting:
			ear.plan(&answers[i].Queue)
		case driver.Granted:
			if shortage != nil {
				answers[i] = driver.AcquireAnswer{Err: s.takeBack(ctx, driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode}, shortage)}
			}
		case driver.Held, driver.Gone:
		}
	}
	if !listening {
		s.listenThenLook(ctx, ear, reqs, answers)
	}
}

// listenThenLook is for the first wait on a channel, which needs its
// subscription only now: what was granted before it stood, it asks for.
func (s *store) listenThenLook(ctx context.Context, ear *ear, reqs []*driver.AcquireRequest, answers []driver.AcquireAnswer) {
	var places []driver.Ref
	var of []int
	for i := range answers {
		if answers[i].Err == nil && answers[i].Status == driver.Waiting {
			places = append(places, driver.Ref{Name: reqs[i].Name, Owner: reqs[i].Owner, Mode: reqs[i].Mode})
			of = append(of, i)
		}
	}
	if len(places) == 0 {
		return
	}
	ear.open(ctx)
	for k, res := range s.Beat(ctx, places) {
		if res.Err == nil { // else the next beat finds out
			answers[of[k]].AcquireResult = driver.AcquireResult{Status: res.Status, Grant: res.Grant, Queue: res.Queue}
		}
	}
}

func (s *store) acquireCall(reqs []*driver.AcquireRequest) []string {
	p := newPhrase()
	p.script(acquireScript, 3*len(reqs))
	for _, req := range reqs {
		tag := tagOf(req.Name.Key)
		p.record(tag, req.Name.Key)
		p.bucket(tag)
		p.tomb(tag, &req.Owner)
	}
	p.word(s.id)
	for _, req := range reqs {
		p.owner(&req.Owner).end()
		p.millis(req.TTL).end()
		p.how(req)
		p.label(req).end()
	}
	return p.words()
}

// how is what only an attempt on a name in use needs, in one word.
func (p *phrase) how(req *driver.AcquireRequest) {
	p.part(modeLetter(req.Mode)).part(" ").number(req.N).part(" ").number(req.Limit).part(" ")
	switch {
	case req.Queue && req.Unfair:
		p.part("qu ")
	case req.Queue:
		p.part("q ")
	case req.Unfair:
		p.part("u ")
	default:
		p.part("- ")
	}
	p.padded(req.Claim).end()
}

// label is who asks, and what the record says of the name beside its key.
func (p *phrase) label(req *driver.AcquireRequest) *phrase {
	p.part(oneLine(req.Label))
	if n := &req.Name; !keyTells(n) {
		p.part("\n").part(n.Prefix).part(":").part(n.Full)
	}
	return p
}

func modeLetter(m driver.Mode) string {
	switch m {
	case driver.Shared:
		return "s"
	case driver.Permits:
		return "p"
	case driver.Exclusive:
	}
	return "x"
}

func readAcquire(text string, req *driver.AcquireRequest) (res driver.AcquireResult, err error) {
	kind, rest := cutKind(text)
	switch kind {
	case 'G':
		res.Status = driver.Granted
		res.Grant, err = readGrant(rest, req.TTL)
	case 'H', 'W':
		res.Status = driver.Held
		if kind == 'W' {
			res.Status = driver.Waiting
		}
		res.Queue, err = readQueue(rest)
	case 'V':
		res.Status = driver.Waiting
		res.Queue, err = readLine(rest)
	case 'X':
		res.Status = driver.Gone
	case 'C':
		err = otherKind(rest, req.Limit)
	default:
		err = strange(text)
	}
	return res, err
}

// cutKind splits an answer into its first letter and the rest.
func cutKind(text string) (kind byte, rest string) {
	if text == "" {
		return 0, ""
	}
	return text[0], text[1:]
}

// strange is the error of an answer that is none: a refusal of this request in a
// batch, or nothing that we know.
func strange(text string) error {
	if reason, ok := strings.CutPrefix(text, "!"); ok {
		return ServerError(reason)
	}
	return ServerError("ERR a script of ours answered " + strconv.Quote(text))
}

// readGrant reads "token" of a new grant or "token ms" of one that there was.
func readGrant(text string, window time.Duration) (driver.Grant, error) {
	token, ms, old := strings.Cut(text, " ")
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return driver.Grant{}, strange(text)
	}
	if old {
		left, err := strconv.ParseInt(ms, 10, 64)
		if err != nil {
			return driver.Grant{}, strange(text)
		}
		window = time.Duration(left) * time.Millisecond
	}
	return driver.Grant{Token: n, Window: window}, nil
}

// readQueue reads "ahead ms clock kind [holder]".
func readQueue(text string) (driver.Queue, error) {
	f := strings.SplitN(text, " ", 5)
	if len(f) < 5 {
		return driver.Queue{}, strange(text)
	}
	ahead, err1 := strconv.Atoi(f[0])
	left, err2 := strconv.ParseInt(f[1], 10, 64)
	now, err3 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return driver.Queue{}, strange(text)
	}
	q := driver.Queue{Ahead: ahead, Remaining: time.Duration(left) * time.Millisecond}
	if owner, holder, ok := strings.Cut(f[4], " "); ok {
		if h, ok := readHolder(owner, holder, modeOf(f[3]), now); ok {
			q.Holder = &h
		}
	}
	return q, nil
}

// readLine reads "ahead clock record", where the record is of a plain exclusive holder
// for whom others wait.
func readLine(text string) (driver.Queue, error) {
	ahead, rest, _ := strings.Cut(text, " ")
	clock, record, _ := strings.Cut(rest, " ")
	n, err1 := strconv.Atoi(ahead)
	now, err2 := strconv.ParseInt(clock, 10, 64)
	w, ok := readWaited(record)
	if err1 != nil || err2 != nil || !ok {
		return driver.Queue{}, strange(text)
	}
	q := driver.Queue{Ahead: n, Remaining: max(0, micros(w.expires-now))}
	if h, ok := w.holder(now); ok {
		q.Holder = &h
	}
	return q, nil
}
