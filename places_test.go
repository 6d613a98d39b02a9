package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// queueing is a store that keeps places, whose beats a test sees and answers.
// Messages of grants do not arrive.
type queueing struct {
	*plain
	beats    times
	onBeat   func(ctx context.Context, places []driver.Ref, n int)
	onAnswer func(q *driver.Queue)
	deliver  func(driver.Signal)
	sent     atomic.Int64
}

func newQueueing(tb testing.TB, server *memlock.Server) *queueing {
	tb.Helper()
	s := &queueing{plain: newPlain(tb, server)}
	s.change = func(p *driver.Properties) { p.Wait = driver.ByPlaces }
	s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
		res, err := s.inner.Acquire(ctx, req)
		if s.onAnswer != nil {
			s.onAnswer(&res.Queue)
		}
		return res, err
	}
	return s
}

func (s *queueing) Listen(deliver func(driver.Signal)) { s.deliver = deliver }

func (s *queueing) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	s.beats.note()
	if s.onBeat != nil {
		s.onBeat(ctx, places, int(s.sent.Add(1)))
	}
	results := s.inner.Beat(ctx, places)
	for i := range results {
		if s.onAnswer != nil {
			s.onAnswer(&results[i].Queue)
		}
	}
	return results
}

// missed says that messages may have been lost.
func (s *queueing) missed() {
	done := make(chan struct{})
	go func() {
		s.deliver(driver.Signal{Kind: driver.MissedSignal})
		close(done)
	}()
	<-done
}

// A store without messages tells when it wants the next heartbeat.
func TestBeatsFollowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		s := newQueueing(t, server)
		s.onAnswer = func(q *driver.Queue) { q.Again = 200 * time.Millisecond }
		c := open(t, s, nil)
		out := later(t.Context(), c, "x", nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(s.beats.pauses()); n < 98 || n > 135 { // on a grid of 50 ms
			t.Errorf("%d beats in 20 s, want about 100", n)
		}
		start := time.Now()
		give(t, held)
		got := <-out
		if took := got.at.Sub(start); took > 200*time.Millisecond {
			t.Errorf("granted %v after the release", took)
		}
		give(t, got.lease)
	})
}

// Signals that were missed while a beat was on its way: its answer may be older,
// so the next one is sent at once.
func TestMissedSignalDuringABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		take(t, newSpy(t, server).client(t), "x", nil)
		s := newQueueing(t, server)
		s.onBeat = func(_ context.Context, _ []driver.Ref, n int) {
			if n == 5 { // the second of those that come every 10 s
				time.Sleep(300 * time.Millisecond)
				s.missed()
			}
		}
		c := open(t, s, nil)
		later(t.Context(), c, "x", nil)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		pauses := s.beats.pauses()
		if len(pauses) < 5 || pauses[3] < 9*time.Second || pauses[4] != 300*time.Millisecond {
			t.Errorf("beats after %v", pauses)
		}
	})
}

// Signals that were missed between two beats: every place is asked about at
// once.
func TestMissedSignalBetweenBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		other := newSpy(t, server).client(t)
		x, y := take(t, other, "x", nil), take(t, other, "y", nil)
		s := newQueueing(t, server)
		c := open(t, s, nil)
		out, out2 := later(t.Context(), c, "x", nil), later(t.Context(), c, "y", nil)
		time.Sleep(15 * time.Second)
		give(t, x)
		give(t, y)
		start := time.Now()
		s.missed()
		for _, o := range []<-chan outcome{out, out2} {
			got := <-o
			if got.at != start {
				t.Errorf("granted %v after the signal", got.at.Sub(start))
			}
			give(t, got.lease)
		}
	})
}

// The beats of many places travel together.
func TestBeatsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		other := newSpy(t, server).client(t)
		s := newQueueing(t, server)
		var most atomic.Int64
		s.onBeat = func(_ context.Context, places []driver.Ref, _ int) {
			most.Store(max(most.Load(), int64(len(places))))
		}
		c := open(t, s, nil)
		for i := range 100 {
			name := string(rune('A' + i))
			take(t, other, name, nil)
			later(t.Context(), c, name, &holdfast.AcquireOptions{Wait: time.Minute})
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := len(s.beats.pauses()); n > 20 || most.Load() != 100 {
			t.Errorf("%d beats of at most %d places", n, most.Load())
		}
		time.Sleep(time.Minute)
	})
}
