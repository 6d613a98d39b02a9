package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// traffic uses a store in every way until it is told to end, and notes errors
// that say more than that the servers could not be asked.
type traffic struct {
	tb   testing.TB
	s    *store
	end  chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	done map[string]int // successes of each verb
}

func run(tb testing.TB, s *store) *traffic {
	tb.Helper()
	tr := &traffic{tb: tb, s: s, end: make(chan struct{}), done: map[string]int{}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // on all masters of a cluster
		tr.wg.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-tr.end:
					return
				default:
					tr.round(tb.Name() + name)
				}
			}
		})
	}
	return tr
}

// round acquires, takes a place, renews, beats and releases one name.
func (tr *traffic) round(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, waiter := request(name), request(name)
	waiter.Queue = true
	got, err := tr.s.Acquire(ctx, req)
	tr.note("acquire", err)
	_, err = tr.s.Acquire(ctx, waiter)
	tr.note("wait", err)
	ref := driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: got.Grant.Token}
	place := driver.Ref{Name: req.Name, Owner: waiter.Owner, Mode: req.Mode}
	tr.note("renew", tr.s.Renew(ctx, []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0].Err)
	tr.note("beat", tr.s.Beat(ctx, []driver.Ref{place})[0].Err)
	_, err = tr.s.Release(ctx, &driver.ReleaseRequest{Ref: place})
	tr.note("leave", err)
	_, err = tr.s.Release(ctx, &driver.ReleaseRequest{Ref: ref})
	tr.note("release", err)
}

func (tr *traffic) note(verb string, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err == nil {
		tr.done[verb]++
		return
	}
	// Canceled: the round's time was over before it came so far, on a busy machine.
	if kind := tr.s.Classify(err); kind != driver.Unavailable && kind != driver.Indeterminate && kind != driver.Canceled {
		tr.tb.Errorf("%s: %v: %v", verb, kind, err)
	}
}

// flows waits until every verb has worked some times more.
func (tr *traffic) flows() {
	tr.tb.Helper()
	tr.mu.Lock()
	clear(tr.done)
	tr.mu.Unlock()
	until(tr.tb, "every verb works", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for _, verb := range []string{"acquire", "wait", "renew", "beat", "leave", "release"} {
			if tr.done[verb] < 30 {
				return false
			}
		}
		return true
	})
}

func (tr *traffic) stop() {
	close(tr.end)
	tr.wg.Wait()
}

// survives holds a name and waits for it while something happens, under the
// traffic of others: the hold is renewed afterwards, its release hands over, and
// the next is told.
func survives(t *testing.T, url string, happen func()) {
	t.Helper()
	s := openAt(t, url)
	var h heard
	h.listen(s)
	tr := run(t, openAt(t, url))
	defer tr.stop()
	ref, place := hold(t, s, t.Name()), enqueue(t, s, t.Name())
	stop := keepAlive(s, place)
	defer stop()
	tr.flows()
	happen()
	res := retry(t, s, func() (driver.RenewResult, error) {
		res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Hour}})[0]
		return res, res.Err
	})
	if res.Status != driver.Renewed {
		t.Fatalf("renewal: %+v", res)
	}
	tr.flows()
	stop()
	released := retry(t, s, func() (bool, error) { return s.Release(t.Context(), &driver.ReleaseRequest{Ref: ref}) })
	if !released {
		t.Error("nothing was released")
	}
	until(t, "the grant is told", func() bool {
		if h.has(driver.GrantSignal, place.Owner) {
			return true
		}
		res := s.Beat(t.Context(), []driver.Ref{place})[0]
		return res.Status == driver.Granted
	})
	next := hold(t, s, t.Name()+" other")
	free(t, s, next)
}

// keepAlive beats a place as package holdfast does, since a busy machine may need longer for
// all the rest than a place lives by itself. It ends when stop returns.
func keepAlive(s *store, place driver.Ref) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Beat(ctx, []driver.Ref{place}) // what fails meanwhile is made up for by the next
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// Sentinel makes another master, and the old one a replica.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	survives(t, r.URL(), func() {
		if err := r.Failover(); err != nil {
			t.Fatal(err)
		}
	})
}

// The master dies; what its replicas have received is kept.
func TestSentinelMasterDies(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	survives(t, r.URL(), func() {
		master := r.Master()
		followed(t, r)
		master.Kill()
	})
}

// followed waits until the replicas have what the master had written before.
func followed(t *testing.T, r *redistest.Replicated) {
	t.Helper()
	offset := func(s *redistest.Server, key string) int {
		n, _ := strconv.Atoi(s.Info(key)) // 0: not told
		return n
	}
	master := r.Master()
	written := offset(master, "master_repl_offset")
	until(t, "replicas in step", func() bool {
		for _, s := range r.Servers {
			if s != master && offset(s, "slave_repl_offset") < written {
				return false
			}
		}
		return true
	})
}

// A failover forgets what no replica has received: the name is granted again
// while its holder trusts it. This is why Sentinel and Cluster are class D.
func TestFailoverForgets(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	s, other := openAt(t, r.URL()), openAt(t, r.URL())
	master, stopped := r.Master(), followers(r)
	for _, s := range stopped {
		s.Signal(syscall.SIGSTOP)
	}
	if _, err := master.Do("CLIENT", "KILL", "TYPE", "replica"); err != nil { // what is on its way is lost too
		t.Fatal(err)
	}
	first := hold(t, s, t.Name())
	master.Kill()
	for _, s := range stopped {
		s.Signal(syscall.SIGCONT)
	}
	second := retry(t, other, func() (driver.AcquireResult, error) { return other.Acquire(t.Context(), request(t.Name())) })
	if second.Status != driver.Granted || second.Grant.Token <= first.Token {
		t.Errorf("the second holder: %+v after %d", second, first.Token)
	}
}

// B041: all clients find the new master; while there is none they are told that
// the store is unavailable, not that the name is held.
func TestAllFindTheNewMaster(t *testing.T) {
	t.Parallel()
	r := ownReplicated(t)
	var clients []*holdfast.Client
	for range 3 {
		c, err := holdfast.Open(t.Context(), r.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	inside := func() {
		for i, c := range clients {
			until(t, "each has been in", func() bool {
				lease, err := c.TryAcquire(t.Context(), t.Name(), nil)
				if err != nil {
					if errors.Is(err, holdfast.ErrHeld) {
						t.Errorf("client %d: %v", i, err)
					}
					return false
				}
				return lease.Release(t.Context()) == nil
			})
		}
	}
	inside()
	r.Master().Kill()
	inside()
}

// A replica takes over from its master in a cluster.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, redistest.Default, true)
	key := recordKey(tagOf(":"+t.Name()), ":"+t.Name())
	survives(t, c.URL(), func() {
		owner := c.Owner(key)
		for i, s := range c.Masters {
			if s == owner {
				if _, err := c.Replicas[i].Do("CLUSTER", "FAILOVER"); err != nil {
					t.Fatal(err)
				}
				until(t, "a failover", func() bool { return c.Replicas[i].Info("role") == "master" && s.Info("role") == "slave" })
			}
		}
	})
}

// The slot of a name moves to another node by hand. Meanwhile its holder is
// renewed; who is refused learns that nothing was done.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	for _, v := range []redistest.Version{redistest.Default, redistest.Redis62} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			slotMoves(t, ownCluster(t, v, false))
		})
	}
}

func slotMoves(t *testing.T, c *redistest.Cluster) {
	t.Helper()
	bystander := openAt(t, c.URL())
	var held driver.Ref
	renewed := func(when string) {
		t.Helper()
		if res := bystander.Renew(t.Context(), []driver.RenewRequest{{Ref: held, TTL: time.Minute}})[0]; res.Status != driver.Renewed {
			t.Errorf("renewal %s: %+v", when, res)
		}
	}
	refused := func(when string, err error) {
		t.Helper()
		if err == nil || bystander.Classify(err) != driver.Unavailable {
			t.Errorf("%s: %v is %v", when, err, bystander.Classify(err))
		}
	}
	for i := range 1 << 20 { // another name of the same bucket
		if name := nameOf("other" + time.Duration(i).String()); bucketOf(name.Key) == bucketOf(nameOf(t.Name()).Key) {
			held = hold(t, bystander, name.Full)
			break
		}
	}
	survives(t, c.URL(), func() {
		m, err := c.BeginMove(recordKey(tagOf(held.Name.Key), held.Name.Key))
		if err != nil {
			t.Fatal(err)
		}
		renewed("while the slot leaves")
		_, err = bystander.Acquire(t.Context(), request(t.Name()))
		refused("an attempt while the slot leaves", err)
		if err := m.Keys(); err != nil {
			t.Fatal(err)
		}
		renewed("while the slot arrives")
		_, err = bystander.Acquire(t.Context(), request(t.Name()))
		refused("an attempt while the slot arrives", err)
		_, err = bystander.Release(t.Context(), &driver.ReleaseRequest{Ref: held})
		refused("a release while the slot arrives", err)
		if err := m.End(); err != nil {
			t.Fatal(err)
		}
		renewed("when the slot has moved")
	})
	free(t, bystander, held)
}

// A cluster that has lost a master without a replica serves nobody.
func TestClusterDown(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, redistest.Default, false)
	s := openAt(t, c.URL())
	lost := c.Masters[0]
	var name string
	for i := range 1 << 20 { // one of another master
		name = "n" + time.Duration(i).String()
		if key := nameOf(name).Key; c.Owner(recordKey(tagOf(key), key)) == c.Masters[1] {
			break
		}
	}
	ref := hold(t, s, name)
	lost.Kill()
	until(t, "the cluster is down", func() bool {
		res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0]
		if res.Err != nil && s.Classify(res.Err) != driver.Unavailable {
			t.Errorf("renewal: %v", res.Err)
		}
		return res.Err != nil
	})
	refuses(t, s, name, driver.Unavailable)
	if err := lost.Launch(); err != nil {
		t.Fatal(err)
	}
	res := retry(t, s, func() (driver.RenewResult, error) {
		res := s.Renew(t.Context(), []driver.RenewRequest{{Ref: ref, TTL: time.Minute}})[0]
		return res, res.Err
	})
	if res.Status != driver.Renewed {
		t.Errorf("afterwards: %+v", res)
	}
}

// A URL that means another kind of servers than there are is refused, with the
// right one; a replica is told by its name.
func TestWrongKindOfServer(t *testing.T) {
	t.Parallel()
	r, c := ownReplicated(t), ownCluster(t, redistest.Default, false)
	for url, want := range map[string]string{
		c.Masters[0].URL():                                  "redis+cluster://",
		r.Sentinels[0].URL():                                "redis+sentinel://",
		"redis+cluster://" + r.Servers[0].Addr():            "cluster",
		"redis+sentinel://" + r.Sentinels[0].Addr() + "/no": "master",
	} {
		_, err := openURL(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if kind := classify(err); kind != driver.Unsupported && kind != driver.Invalid {
			t.Errorf("%s: %v is %v", url, err, kind)
		}
	}
	replica := openAt(t, followers(r)[0].URL())
	if p := replica.Properties(); p.Class != driver.ClassD || !strings.Contains(strings.Join(p.Warnings, " "), "the server is a replica") {
		t.Errorf("a replica: class %v, %q", p.Class, p.Warnings)
	}
	refuses(t, replica, t.Name(), driver.Unavailable)
}

// Two slots in one call are refused as a whole. The core never does it; see
// driver.Sharder.
func TestTwoSlotsInOneCall(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, redistest.Default, false)
	s := openAt(t, c.URL())
	one, two := request(t.Name()), request(t.Name()+" two")
	if s.Shard(driver.Ref{Name: one.Name}) == s.Shard(driver.Ref{Name: two.Name}) {
		t.Fatal("the names are of one bucket")
	}
	for _, a := range s.AcquireMany(t.Context(), []*driver.AcquireRequest{one, two}) {
		if a.Err == nil || s.Classify(a.Err) != driver.Invalid {
			t.Errorf("%+v", a)
		}
	}
	free(t, s, hold(t, s, one.Name.Full))
}
