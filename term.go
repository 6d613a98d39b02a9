package holdfast

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Run leads again and again: it campaigns, calls fn, and when fn has returned
// resigns. No term of this candidate, nor another Run's of this client, begins
// before fn has returned.
//
// The ctx of fn is the term's. It ends, so that fn stops before another can lead:
// at the term's deadline less the grace if it could not be renewed, at once when
// it is lost or broken, when Run's ctx ends, and when the client is closed. fn must
// then return within the grace. While the store lets us, the term is renewed until
// fn has returned, so a leader that is called off takes its time in peace. If fn is
// still running when its term has ended, another may lead beside it: Options.Observe
// is told EventOverran, and a line is logged.
//
// If fn returns nil by itself, Run resigns and returns nil. If it returns an
// error, Run resigns, pauses, and campaigns again. If fn returns because its ctx
// ended, whatever it returns, Run returns when its own ctx has ended, or the client
// is closed; else the term was lost, and it campaigns again. The pause is 1 s, after
// a further error twice as long up to 30 s, half of it by chance; a term of 30 s
// begins anew with 1 s. A panic of fn resigns and goes on.
//
// Errors: ctx's, which also matches the error of an fn that was called off;
// ErrClosed; and those of [Election.Campaign] that no further try can mend.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, t *Term) error) error {
	for pause := (backoff{least: termPauseMin, most: termPauseMax}); ; {
		term, err := e.Campaign(ctx, e.opts.Value)
		if err != nil {
			return err
		}
		began := driver.Now()
		over, err := e.serve(ctx, term, fn)
		switch {
		case over:
			return err
		case err == nil || driver.Now().Sub(began) >= termPauseMax:
			pause.reset()
		}
		e.c.rest(ctx, pause.next())
	}
}

// duty is the work of one term.
type duty struct {
	e     *Election
	term  *Term
	ctx   *leaseContext
	done  chan struct{} // closed when fn has returned
	grace time.Duration
	timer *time.Timer
}

// serve does the work of one term, and resigns. over says that Run is over, with
// err; else err is what ended the work, nil if it was the end of the term.
func (e *Election) serve(ctx context.Context, term *Term, fn func(context.Context, *Term) error) (over bool, err error) {
	d := &duty{e: e, term: term, done: make(chan struct{}), grace: e.grace()}
	d.ctx = term.newContext(term.Context())
	defer d.ctx.cancel(nil)
	defer func() { _ = term.Resign(ctx) }() // told to the hook; the store frees it in the end
	other, err := d.begin()
	if err != nil || other != nil {
		_ = term.Resign(ctx)
		other.await(ctx)
		return err != nil, err
	}
	err = d.work(ctx, fn)
	return d.outcome(ctx, err)
}

// begin enters the work. There may be other work of the name, whose term has
// ended without it: then this term must not begin.
func (d *duty) begin() (other *duty, err error) {
	c := d.e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	key := d.term.hold.line.key.name
	switch {
	case c.closed || c.retiring:
		return nil, c.errorf("run", d.e.name, ErrClosed, nil)
	case c.duties[key] != nil:
		return c.duties[key], nil
	}
	c.duties[key] = d
	return nil, nil
}

func (d *duty) end() {
	c := d.e.c
	c.mu.Lock()
	delete(c.duties, d.term.hold.line.key.name)
	c.mu.Unlock()
	close(d.done)
}

// await waits until the work has ended, or ctx or the client has.
func (d *duty) await(ctx context.Context) {
	if d == nil {
		return
	}
	select {
	case <-d.done:
	case <-ctx.Done():
	case <-d.e.c.life.Done():
	}
}

// work calls fn, and ends its ctx in time.
func (d *duty) work(ctx context.Context, fn func(context.Context, *Term) error) error {
	called := context.AfterFunc(ctx, func() { d.ctx.cancel(context.Cause(ctx)) })
	defer called()
	stopTimer := d.watchDeadline()
	defer stopTimer()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		d.watchWork()
	}()
	defer func() { <-watched }()
	defer d.end()
	return fn(d.ctx, d.term)
}

// errTermEnds is why the ctx of a work ends before its term does.
var errTermEnds = textError("the term could not be renewed and is about to end")

// watchDeadline ends the work's ctx when the term's deadline is only the grace
// away. Renewals move the deadline while the timer runs, so it is set again.
func (d *duty) watchDeadline() (stop func()) {
	var stopped atomic.Bool
	d.timer = time.AfterFunc(time.Hour, func() {
		deadline := driver.Instant(d.term.hold.deadline.Load())
		rest := deadline.Sub(driver.Now()) - d.grace
		switch {
		case stopped.Load() || d.ctx.Err() != nil:
		case deadline == 0: // it has ended, and its own context says why
		case rest <= 0:
			d.ctx.cancel(d.term.errorf("run", ErrLost, errTermEnds))
		default:
			d.timer.Reset(min(rest, suspendCheck))
		}
	})
	d.timer.Reset(0)
	return func() {
		stopped.Store(true)
		d.timer.Stop()
	}
}

// watchWork tells of work that goes on after its term has ended.
func (d *duty) watchWork() {
	select {
	case <-d.ctx.Done():
	case <-d.done:
		return
	}
	told := driver.Now()
	timer := time.NewTimer(d.grace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.done:
		return
	}
	select {
	case <-d.term.Context().Done():
	case <-d.done:
		return
	}
	c := d.e.c
	err := d.term.errorf("run", ErrLost, textError("the work goes on although its term has ended: another may lead"))
	c.log.Error("holdfast: a leader's work did not stop in time", "store", c.props.Store, "name", d.e.name, "token", d.term.Token(), "error", err)
	c.observe(d.term.Context(), Event{Kind: EventOverran, Name: d.e.name, Mode: Exclusive, Token: d.term.Token(), Took: driver.Now().Sub(told), Err: err})
}

// outcome tells what the end of the work means for Run.
func (d *duty) outcome(ctx context.Context, err error) (over bool, why error) {
	c := d.e.c
	calledOff := d.ctx.Err() != nil
	valid := d.term.Valid()
	c.mu.Lock()
	closing := c.closed || c.retiring
	c.mu.Unlock()
	switch {
	case err == nil && !calledOff && valid:
		over = true
	case ctx.Err() != nil:
		over, why = true, c.errorf("run", d.e.name, ctx.Err(), calledOffError(err))
	case closing:
		over, why = true, c.errorf("run", d.e.name, ErrClosed, calledOffError(err))
	case calledOff || !valid: // by the end of the term: not the work's fault
	default:
		why = err
	}
	d.tell(err)
	return over, why
}

// calledOffError is what an fn that was called off adds to ctx's error.
func calledOffError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// tell tells that the work of a term has ended.
func (d *duty) tell(err error) {
	c := d.e.c
	if err != nil && d.ctx.Err() == nil {
		c.log.Warn("holdfast: a leader's work failed", "store", c.props.Store, "name", d.e.name, "token", d.term.Token(), "error", err)
	}
	c.observe(d.term.Context(), Event{
		Kind: EventWorkEnded, Name: d.e.name, Mode: Exclusive, Token: d.term.Token(), Took: driver.Now().Sub(d.term.since), Err: err,
	})
}

// retire calls off all that Run does, so that it has stopped before Close ends
// the terms. Work that does not stop within its grace is not waited for.
func (c *Client) retire() {
	c.mu.Lock()
	c.retiring = true
	var duties []*duty
	for _, d := range c.duties {
		duties = append(duties, d)
	}
	c.mu.Unlock()
	var longest time.Duration
	for _, d := range duties {
		d.ctx.cancel(c.errorf("run", d.e.name, ErrClosed, nil))
		longest = max(longest, d.grace)
	}
	limit := time.NewTimer(longest)
	defer limit.Stop()
	for _, d := range duties {
		select {
		case <-d.done:
		case <-limit.C:
			return
		}
	}
}

// rest sleeps until ctx or the client ends.
func (c *Client) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.life.Done():
	}
}
