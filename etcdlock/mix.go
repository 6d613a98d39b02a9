package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/driver"
)

// Mix sends attempts and releases in one transaction. If it is surely not applied, each
// kind goes by itself, which knows what to do about it; so do attempts that need more
// than one round.
func (s *store) Mix(ctx context.Context, acquires []*driver.AcquireRequest, releases []*driver.ReleaseRequest) ([]driver.AcquireAnswer, []driver.ReleaseAnswer) {
	attempts, released := s.attempts(ctx, acquires), make([]driver.ReleaseAnswer, len(releases))
	endings := s.endings(ctx, releases, released)
	open := prepared(ctx, attempts)
	s.finish(ctx, endings, s.sendMixed(ctx, open, stepsOf(endings)), released)
	s.attempt(ctx, attempts)
	return s.answers(attempts), released
}

// sendMixed lets each attempt read its answer, and returns those to the steps.
func (s *store) sendMixed(ctx context.Context, open []*attempt, steps []txn) []driver.ReleaseAnswer {
	if len(open) == 0 || len(steps) == 0 {
		return s.release(ctx, steps)
	}
	proofs := s.refresh(ctx, open)
	var t txn
	for _, a := range open {
		t.then = append(t.then, a.txn().op())
	}
	for _, step := range steps {
		t.then = append(t.then, step.op())
	}
	answer, err := s.commit(ctx, t)
	proofs()
	if asWhole(err) || errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrNoSpace) {
		return s.release(ctx, steps)
	}
	answers := make([]driver.ReleaseAnswer, len(steps))
	if err != nil {
		for _, a := range open {
			a.fail(err)
		}
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	}
	readAll(ctx, open, answer)
	for i := range answers {
		answers[i].Released = answer.Responses[len(open)+i].GetResponseTxn().Succeeded
	}
	return answers
}
