// Package faulty puts a bad network between a client and its store.
//
// [Wrap] makes a store that loses requests and replies, delays them, repeats
// requests long after they were answered, drops and delays signals, and goes
// down for a while, as its [Plan] says and a seed decides. It may also hide what
// the store can do, so that one store stands for several shapes of store.
package faulty

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Plan is what goes wrong. Shares are from 0 to 1. The zero Plan lets all pass.
type Plan struct {
	Seed uint64
	// Delay is the longest that a request or a reply travels. A few travel ten
	// times as long.
	Delay time.Duration
	// LoseRequest and LoseReply cut the line before or after the store has
	// done what was asked; the caller learns no sooner than after Delay, and
	// not which of them it was.
	LoseRequest, LoseReply float64
	// Refuse answers "unavailable": surely not done.
	Refuse float64
	// Repeat lets a request arrive a second time, up to Late after the first.
	Repeat float64
	Late   time.Duration
	// LoseSignal drops what the store says by itself.
	LoseSignal float64
}

// Line is one client's way to the store.
type Line struct {
	mu     sync.Mutex
	plan   Plan
	random *rand.Rand
	down   bool
	count  map[string]int
	signal func(driver.Signal)

	life context.Context // ends in Close
	end  context.CancelFunc
	wg   sync.WaitGroup // requests and signals on their way
}

func newLine(p Plan) *Line {
	l := &Line{plan: p, random: rand.New(rand.NewPCG(p.Seed, p.Seed>>32)), count: map[string]int{}}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Down cuts the line: every request is refused or hangs, and signals are lost,
// until Up.
func (l *Line) Down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.count["outage"]++
}

// Up mends the line. The client is told that signals may have been missed.
func (l *Line) Up() {
	l.mu.Lock()
	was, tell := l.down, l.signal
	l.down = false
	l.mu.Unlock()
	if was && tell != nil {
		tell(driver.Signal{Kind: driver.MissedSignal})
	}
}

// Heal mends the line for good: nothing goes wrong from now on, but for what is
// on its way.
func (l *Line) Heal() {
	l.mu.Lock()
	l.plan = Plan{Delay: l.plan.Delay / 10}
	l.mu.Unlock()
	l.Up()
}

// Counts tells how often each fault was injected.
func (l *Line) Counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.count)
}

// fate is what becomes of one request.
type fate struct {
	refused, requestLost, replyLost bool
	out, back, cut                  time.Duration
	again                           time.Duration // 0: it is not repeated
}

func (l *Line) fate() (f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.plan
	f.out, f.back, f.cut = l.travel(), l.travel(), l.travel()+p.Delay
	switch {
	case l.down:
		f.refused = l.random.IntN(2) == 0
		f.requestLost = !f.refused
	case l.hits("refused", p.Refuse):
		f.refused = true
	case l.hits("request lost", p.LoseRequest):
		f.requestLost = true
	case l.hits("reply lost", p.LoseReply):
		f.replyLost = true
	}
	if !f.refused && !f.requestLost && l.hits("repeated", p.Repeat) {
		f.again = 1 + time.Duration(l.random.Int64N(int64(p.Late)+1))
	}
	return f
}

// travel draws a time on the way; under mu. It is never the same twice, nearly,
// so that a seed leaves little to the scheduler.
func (l *Line) travel() time.Duration {
	if l.plan.Delay <= 0 {
		return 0
	}
	d := time.Duration(l.random.Int64N(int64(l.plan.Delay)))
	if l.random.IntN(16) == 0 {
		d *= 10
	}
	return d + 1
}

// hits draws whether a fault strikes; under mu.
func (l *Line) hits(what string, share float64) bool {
	if share <= 0 || l.random.Float64() >= share {
		return false
	}
	l.count[what]++
	return true
}

var (
	errCut  = errors.New("the line was cut")
	errDown = errors.New("the line is down")
)

// call sends a request over the line. The store may handle it after the caller
// has given up, and again later.
func call[R any](ctx context.Context, l *Line, apply func() R) (R, error) {
	var none R
	f := l.fate()
	if f.refused {
		if err := l.sleep(ctx, f.out); err != nil {
			return none, &driver.Failure{Kind: driver.Unavailable, Err: err}
		}
		return none, &driver.Failure{Kind: driver.Unavailable, Err: errDown}
	}
	answer := make(chan R, 1)
	if !f.requestLost {
		l.wg.Go(func() { carry(l, f, apply, answer) })
	}
	var cut <-chan time.Time
	if f.requestLost || f.replyLost {
		timer := time.NewTimer(f.out + f.back + f.cut)
		defer timer.Stop()
		cut = timer.C
	}
	select {
	case r := <-answer:
		return r, nil
	case <-cut:
		return none, &driver.Failure{Kind: driver.Indeterminate, Err: errCut}
	case <-ctx.Done():
		return none, &driver.Failure{Kind: driver.Indeterminate, Err: ctx.Err()}
	}
}

// carry takes a request to the store and the answer back.
func carry[R any](l *Line, f fate, apply func() R, answer chan<- R) {
	if l.sleep(l.life, f.out) != nil {
		return
	}
	r := apply()
	if f.again > 0 {
		l.wg.Go(func() {
			if l.sleep(l.life, f.again) == nil {
				apply()
			}
		})
	}
	if !f.replyLost && l.sleep(l.life, f.back) == nil {
		answer <- r
	}
}

func (l *Line) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// carrySignal brings the client what the store says, late or not at all.
func (l *Line) carrySignal(s driver.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.down || l.hits("signal lost", l.plan.LoseSignal)
	after, tell := l.travel(), l.signal
	if lost || l.life.Err() != nil {
		return
	}
	l.wg.Go(func() { // under mu, as close is: it waits for this one or ends before it
		if l.sleep(l.life, after) == nil {
			tell(s)
		}
	})
}

func (l *Line) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.wg.Wait()
}
