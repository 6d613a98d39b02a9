package zklock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/internal/zktest"
)

// shortTTL makes sessions of 2 s, for tests that wait for the end of one.
const shortTTL = 1500 * time.Millisecond

// user makes a client of package holdfast on a store of ours.
func user(tb testing.TB, at string, ttl time.Duration) *holdfast.Client {
	tb.Helper()
	c := openAt(tb, at, ttl)
	locks, err := holdfast.New(c.store, &holdfast.Options{Logger: silent})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = locks.Close() })
	return locks
}

// soon bounds a call that has nothing to wait for but a busy machine.
func soon(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func take(tb testing.TB, c *holdfast.Client, name string, o *holdfast.AcquireOptions) *holdfast.Lease {
	tb.Helper()
	l, err := c.Acquire(soon(tb), name, o)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func give(tb testing.TB, l *holdfast.Lease) {
	tb.Helper()
	if err := l.Release(context.WithoutCancel(tb.Context())); err != nil {
		tb.Errorf("release: %v", err)
	}
}

// children are the nodes under a name.
func (c *client) children(tb testing.TB, name string) view {
	tb.Helper()
	return childrenIn(tb, c, nameOf(name).Key)
}

func hexOf(o driver.Owner) string { return hex.EncodeToString(o[:]) }

// A create whose answer is lost is found again by the owner in its name: the same
// owner has it, and whoever abandons it is rid of it. Reports B050 and B058.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	c, other := openAt(t, p.url(), testTTL), server.open(t)
	ctx := t.Context()
	other.free(t, other.hold(t, t.Name()))

	req := request(t.Name())
	lost := p.loseAnswerTo("hf1-x-" + hexOf(req.Owner))
	_, err := c.Acquire(ctx, req)
	<-lost
	if kind := c.Classify(err); kind != driver.Indeterminate {
		t.Errorf("a lost grant is %v: %v", kind, err)
	}
	if _, status := other.try(t, t.Name()); status != driver.Held {
		t.Errorf("the lost grant is not there: status %d", status)
	}
	var again driver.AcquireResult
	until(t, "the same owner is answered", func() bool { again, err = c.Acquire(ctx, req); return err == nil })
	if again.Status != driver.Granted || len(c.children(t, t.Name()).children) != 1 {
		t.Fatalf("the same owner again: status %d", again.Status)
	}
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Token: again.Grant.Token}
	lost = p.loseAnswerTo("hf1-x-" + hexOf(req.Owner)) // the delete
	_, err = c.Release(ctx, &driver.ReleaseRequest{Ref: ref})
	<-lost
	if kind := c.Classify(err); kind != driver.Indeterminate {
		t.Errorf("a lost release is %v: %v", kind, err)
	}
	h := other.hold(t, t.Name())
	var released bool
	until(t, "the release is answered", func() bool {
		released, err = c.Release(ctx, &driver.ReleaseRequest{Ref: ref})
		return err == nil
	})
	if released {
		t.Error("the repeated release ended something")
	}

	req = request(t.Name()) // a place
	req.Queue = true
	lost = p.loseAnswerTo("hf1-x-" + hexOf(req.Owner))
	_, err = c.Acquire(ctx, req)
	<-lost
	if kind := c.Classify(err); kind != driver.Indeterminate {
		t.Errorf("a lost place is %v: %v", kind, err)
	}
	until(t, "it is abandoned", func() bool {
		released, err = c.Release(ctx, &driver.ReleaseRequest{Ref: driver.Ref{Name: req.Name, Owner: req.Owner}, Abandon: true})
		return err == nil
	})
	if n := len(other.children(t, t.Name()).children); !released || n != 1 {
		t.Errorf("abandoned: %v, and %d nodes are left", released, n)
	}
	other.free(t, h)
}

// An attempt that lost its connection after its node was made is undone in the
// background, while its client lives on. Report B059.
func TestTryThatIsCut(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	a, b, c := user(t, p.url(), testTTL), user(t, server.url(), testTTL), user(t, server.url(), testTTL)
	for range 5 {
		l := take(t, b, t.Name(), nil)
		lost := p.loseAnswerTo("hf1-x-")
		if _, err := a.TryAcquire(t.Context(), t.Name(), nil); !errors.Is(err, holdfast.ErrIndeterminate) {
			t.Errorf("an attempt that was cut: %v", err)
		}
		<-lost
		give(t, l)
		give(t, take(t, c, t.Name(), nil))
	}
}

// Acquires that are cancelled at any moment leave no node, though their session
// lives. Report B050.
func TestCancelledAnywhere(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b, c := user(t, server.url(), testTTL), user(t, server.url(), testTTL), user(t, server.url(), testTTL)
	rounds := 60
	if full() {
		rounds = 300
	}
	for range rounds {
		l := take(t, a, t.Name(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(rand.N(8*time.Millisecond), cancel)
		if lease, err := b.Acquire(ctx, t.Name(), nil); err == nil {
			t.Fatal("two hold", lease.Token())
		}
		stop.Stop()
		give(t, l)
		give(t, take(t, c, t.Name(), nil))
	}
	look := server.open(t)
	until(t, "nothing is left", func() bool { return len(childrenIn(t, look, "+"+escaped(t.Name())).children) == 0 })
}

// Holders of permits whose connection is cut again and again leave none taken.
// Report B053.
func TestPermitsThroughCuts(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	p := newProxy(t, server)
	took := 4 * time.Second
	if full() {
		took = time.Minute
	}
	o := &holdfast.AcquireOptions{Permits: 1, Limit: 3, Wait: 300 * time.Millisecond}
	var in, most, visits atomic.Int64
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	var wg sync.WaitGroup
	for range 10 {
		c := user(t, p.url(), testTTL)
		wg.Go(func() {
			for !closed(stop) {
				l, err := c.Acquire(t.Context(), t.Name(), o)
				if err != nil {
					continue
				}
				if n := in.Add(1); n > 3 {
					most.Store(n)
				}
				visits.Add(1)
				in.Add(-1)
				_ = l.Release(t.Context()) // if it fails it goes on in the background
			}
		})
	}
	for begin := time.Now(); time.Since(begin) < took; {
		<-time.After(200*time.Millisecond + rand.N(500*time.Millisecond))
		before := visits.Load()
		until(t, "a visit", func() bool { return visits.Load() > before })
		p.cut()
	}
	end()
	wg.Wait()
	if most.Load() > 0 {
		t.Errorf("%d at once", most.Load())
	}
	for range 3 {
		c := user(t, server.url(), testTTL)
		take(t, c, t.Name(), &holdfast.AcquireOptions{Permits: 1, Limit: 3})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Two that take turns go on after each cut of their connections. Report B062.
func TestTurnsThroughCuts(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	proxies := []*proxy{newProxy(t, server), newProxy(t, server)}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var turns [2]atomic.Int64
	for i, p := range proxies {
		c := user(t, p.url(), testTTL)
		wg.Go(func() {
			for !closed(stop) {
				if l, err := c.Acquire(t.Context(), t.Name(), nil); err == nil {
					turns[i].Add(1)
					_ = l.Release(t.Context())
				}
			}
		})
	}
	for range 10 {
		before := [2]int64{turns[0].Load(), turns[1].Load()}
		for _, p := range proxies {
			p.cut()
		}
		until(t, "both go on", func() bool { return turns[0].Load() > before[0]+1 && turns[1].Load() > before[1]+1 })
	}
	close(stop)
	wg.Wait()
}

// A holder that is cut off knows that it has lost before another is let in, and
// can begin anew with the same client. Reports B052 and B069.
func TestPartitionedHolder(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	a, b := user(t, p.url(), shortTTL), user(t, server.url(), testTTL)
	for range 2 {
		l := take(t, a, t.Name(), nil)
		p.freeze()
		next := take(t, b, t.Name(), nil)
		if l.Valid() {
			t.Error("still valid when the next one holds")
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("cause: %v", cause)
		}
		p.heal()
		if err := l.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("release after the loss: %v", err)
		}
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		give(t, next)
		give(t, take(t, a, t.Name(), nil))
	}
}

// A session that ends loses what was held and waited for in it, once; the next
// one is made once for all, and no node of the former is anybody's hold.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	c, other := openAt(t, p.url(), shortTTL), server.open(t)
	ref, place := c.hold(t, t.Name()), c.enqueue(t, t.Name())
	next := other.enqueue(t, t.Name())
	p.freeze()
	other.free(t, other.told(t, next))
	p.heal()
	until(t, "the loss is told", func() bool { return len(c.heard(driver.LostSignal, ref.Owner)) > 0 })
	until(t, "missed signals are told", func() bool { return len(c.heard(driver.MissedSignal, driver.Owner{})) > 0 })
	if res := c.renew(t, ref); res.Status != driver.Lost {
		t.Errorf("renewal: %+v", res)
	}
	if res := c.Beat(t.Context(), []driver.Ref{place}); res[0].Status != driver.Gone {
		t.Errorf("beat: %+v", res[0])
	}
	if ok, err := c.Release(t.Context(), &driver.ReleaseRequest{Ref: ref}); ok || err != nil {
		t.Errorf("release: %v, %v", ok, err)
	}
	before := server.Counter("zk_global_sessions")
	var wg sync.WaitGroup
	ctx := soon(t)
	for i := range 50 {
		wg.Go(func() {
			req := request(fmt.Sprintf("%s%d", t.Name(), i))
			for { // a busy server is given up after half a second, and asked again
				_, err := c.Acquire(ctx, req)
				kind := c.Classify(err)
				if err != nil && (ctx.Err() != nil || kind != driver.Indeterminate && kind != driver.Unavailable) {
					t.Errorf("acquire: %v", err)
				} else if err != nil {
					continue
				}
				return
			}
		})
	}
	wg.Wait()
	if after := server.Counter("zk_global_sessions"); before > 0 && after > before+20 { // other tests make some too
		t.Errorf("%d sessions, %d before", after, before)
	}
	if n := len(c.heard(driver.LostSignal, ref.Owner)); n != 1 {
		t.Errorf("the loss was told %d times", n)
	}
}

// A connection that is cut costs nothing while the session lives: neither hold
// nor place is lost, and what happened meanwhile is learned.
func TestSuspendedIsNotLost(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	p := newProxy(t, server)
	c, other := openAt(t, p.url(), testTTL), server.open(t)
	ref := c.hold(t, t.Name())
	h := other.hold(t, t.Name()+"2")
	place := c.enqueue(t, t.Name()+"2")
	broken := c.hold(t, t.Name()+"3")
	gone := c.hold(t, t.Name()+"4")
	for range 3 {
		p.freeze()
		p.cut()
		p.heal()
	}
	p.freeze()
	p.cut()
	other.free(t, h) // unseen
	if status, err := other.Break(t.Context(), &driver.BreakRequest{Name: broken.Name, Token: broken.Token, Reason: "why not"}); status != driver.Marked {
		t.Errorf("break: %d, %v", status, err)
	}
	if status, err := other.Break(t.Context(), &driver.BreakRequest{Name: gone.Name, Token: gone.Token, Reason: "why not", Force: true}); status != driver.Freed {
		t.Errorf("break by force: %d, %v", status, err)
	}
	p.heal()
	c.told(t, place)
	until(t, "the break is told", func() bool { return len(c.heard(driver.BrokenSignal, broken.Owner)) > 0 })
	until(t, "the end is told", func() bool { return len(c.heard(driver.LostSignal, gone.Owner)) > 0 })
	if res := c.renew(t, ref); res.Status != driver.Renewed {
		t.Errorf("renewal: %+v", res)
	}
	if res := c.renew(t, broken); res.Status != driver.Broken || res.Reason != "why not" {
		t.Errorf("renewal: %+v", res)
	}
	if len(c.heard(driver.LostSignal, ref.Owner)) > 0 || len(c.heard(driver.MissedSignal, driver.Owner{})) > 0 {
		t.Error("a loss was told")
	}
	c.free(t, ref)
}

// Downgrading keeps the place: no writer gets in before the reader is done.
// Report B054.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b := user(t, server.url(), testTTL), user(t, server.url(), testTTL)
	write := take(t, a, t.Name(), nil)
	got := make(chan *holdfast.Lease, 1)
	go func() {
		l, err := b.Acquire(soon(t), t.Name(), nil)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	look := server.open(t)
	until(t, "the writer waits", func() bool { return len(childrenIn(t, look, "+"+escaped(t.Name())).children) == 2 })
	read, err := a.Acquire(write.Context(), t.Name(), &holdfast.AcquireOptions{Mode: holdfast.Shared, Reentrant: true})
	if err != nil {
		t.Fatal(err)
	}
	give(t, write)
	select {
	case <-got:
		t.Error("the writer got in beside the reader")
	case <-time.After(time.Second):
	}
	give(t, read)
	give(t, <-got)
}

// Of fifty who try at once, never more get in than the limit. Report B067.
func TestBarrierOfTries(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	var clients []*holdfast.Client
	for range 5 {
		clients = append(clients, user(t, server.url(), testTTL))
	}
	rounds := 20
	if full() {
		rounds = 500
	}
	for round := range rounds {
		var in atomic.Int64
		var wg sync.WaitGroup
		leases := make([]*holdfast.Lease, 50)
		for i := range leases {
			wg.Go(func() {
				l, err := clients[i%5].TryAcquire(t.Context(), t.Name(), &holdfast.AcquireOptions{Permits: 1, Limit: 2})
				if err == nil {
					leases[i] = l
					in.Add(1)
				} else if !errors.Is(err, holdfast.ErrHeld) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := in.Load(); n > 2 || n == 0 {
			t.Errorf("round %d: %d got in", round, n)
		}
		for _, l := range leases {
			if l != nil {
				give(t, l)
			}
		}
	}
}

// Attempts in vain leave nothing behind, and a client that made many closes at
// once. Report B068.
func TestTriesLeaveNothing(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	a, b := user(t, server.url(), testTTL), user(t, server.url(), testTTL)
	l := take(t, b, t.Name(), nil)
	before := server.Counter("zk_znode_count")
	tries := 500
	if full() {
		tries = 10000
	}
	for range tries {
		if _, err := a.TryAcquire(t.Context(), t.Name(), nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
	}
	if after := server.Counter("zk_znode_count"); after != before {
		t.Errorf("%d nodes, %d before", after, before)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	give(t, l)
}

// Watches do not pile up, whether waits were served or given up. Report B018.
func TestWatchesDoNotPileUp(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "-Dznode.container.checkIntervalMs=200") // a name's own watch ends with its node
	a, b := user(t, server.url(), testTTL), user(t, server.url(), testTTL)
	names := 200
	if full() {
		names = 5000
	}
	limit := make(chan struct{}, 50)
	var wg sync.WaitGroup
	for i := range names {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			name := fmt.Sprintf("%s%d", t.Name(), i)
			l := take(t, a, name, nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if lease, err := b.Acquire(t.Context(), name, &holdfast.AcquireOptions{Wait: 20 * time.Millisecond}); err == nil {
					_ = lease.Release(t.Context())
				}
			}()
			if i%2 == 0 {
				<-done
			}
			give(t, l)
			<-done
		})
	}
	wg.Wait()
	until(t, "no watches are left", func() bool {
		return strings.Contains(server.Word("wchs"), "Total watches:0")
	})
}

// Of a thousand who wait nine hundred die. The end of one who waits lets nobody in
// while the holder lives.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	p := newProxy(t, server)
	holder, dying, living := server.open(t), openAt(t, p.url(), testTTL), server.open(t)
	ref := holder.hold(t, "name")
	var places []driver.Ref
	for i := range 1000 {
		if i%10 == 5 {
			places = append(places, living.enqueue(t, "name"))
		} else {
			dying.enqueue(t, "name")
		}
	}
	p.freeze()
	until(t, "the dead are gone", func() bool { return len(holder.children(t, "name").children) == 101 })
	for _, place := range places {
		if res := living.Beat(t.Context(), []driver.Ref{place})[0]; res.Status != driver.Waiting {
			t.Fatalf("a place while the holder lives: %+v", res)
		}
	}
	holder.free(t, ref)
	for _, place := range places[:10] {
		living.free(t, living.told(t, place))
	}
	if n := len(holder.children(t, "name").children); n != 90 {
		t.Errorf("%d nodes are left", n)
	}
}

// Who waits for a lock longer than its session lives without a word still has its
// place, and a hold that is real. Report B069.
func TestLongWait(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	a, b, c := user(t, server.url(), testTTL), user(t, server.url(), shortTTL), user(t, server.url(), testTTL)
	l := take(t, a, t.Name(), nil)
	go func() {
		<-time.After(3 * sessionFor(shortTTL))
		_ = l.Release(context.WithoutCancel(t.Context()))
	}()
	won := take(t, b, t.Name(), nil)
	for range 5 {
		if _, err := c.TryAcquire(t.Context(), t.Name(), nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("beside the hold: %v", err)
		}
		<-time.After(200 * time.Millisecond)
	}
	give(t, won)
}

// A server that is not there is told within a bounded time, with its address.
// Report B066.
func TestNoServer(t *testing.T) {
	t.Parallel()
	port := testserver.Addr(testserver.FreePort())
	begin := time.Now()
	_, err := openURL(t.Context(), "zookeeper://"+port)
	if driver.KindOf(err) != driver.Unavailable || !strings.Contains(err.Error(), port) {
		t.Errorf("a closed port: %v", err)
	}
	// A listener that never answers, as behind a firewall.
	p := newProxy(t, &server{&zktest.Server{Port: 1}})
	p.freeze()
	silentListener := newProxy(t, sharedServer(t))
	silentListener.freeze()
	_, err = openURL(t.Context(), silentListener.url())
	if driver.KindOf(err) != driver.Unavailable || !strings.Contains(err.Error(), silentListener.addr()) {
		t.Errorf("a silent server: %v", err)
	}
	if took := time.Since(begin); took > setUp+patience/2 {
		t.Errorf("told after %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err = holdfast.Open(ctx, silentListener.url(), nil); err == nil {
		t.Error("opened")
	}
}
