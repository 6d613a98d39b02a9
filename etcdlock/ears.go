package etcdlock

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

// ears are the client's one stream of watches, opened with the first. A watch
// is of one key, and begins after the revision that the server has when it is
// made: one that begins at or before it would be served every 100 ms only. What
// the watch cannot have seen, a look finds. A stream that broke is made anew
// without its watches; who needs them is told that signals were missed.
type ears struct {
	s       *store
	deliver func(driver.Signal)

	// Under book.mu.
	watches map[int64]*watch
	last    int64
	out     []*pb.WatchRequest // to be sent
	kick    chan struct{}      // something is
	started bool
	heard   driver.Instant     // when the latest message came
	asked   driver.Instant     // when the stream was asked for one; 0: it has answered
	cut     context.CancelFunc // ends the stream
}

// watch is of an entry's own key or, with a rival, of the rival's; or of all keys
// of a name.
type watch struct {
	id    int64
	entry *entry
	rival *rival
	scene *scene
	since int64 // the revision at which it surely stood; 0: not yet
}

// The pauses between streams that fail.
const (
	deafFirst   = 20 * time.Millisecond
	deafLongest = time.Second
)

func (e *ears) init(s *store) { e.s, e.watches, e.kick = s, map[int64]*watch{}, make(chan struct{}, 1) }

// watch asks for a watch, without waiting for it; under mu. Of a rival only the
// end counts.
func (e *ears) watch(of *entry, r *rival, key string) *watch {
	create := &pb.WatchCreateRequest{Key: []byte(key)}
	if r != nil {
		create.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	}
	return e.create(&watch{entry: of, rival: r}, create)
}

// watchName watches all keys of a name; under mu.
func (e *ears) watchName(sc *scene, key string) *watch {
	return e.create(&watch{scene: sc}, &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(key))})
}

func (e *ears) create(w *watch, create *pb.WatchCreateRequest) *watch {
	e.last++
	w.id, create.WatchId = e.last, e.last
	e.watches[w.id] = w
	e.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	if !e.started && e.s.life.Err() == nil {
		e.started = true
		e.s.wg.Go(e.listen)
	}
	return w
}

// unwatch ends a watch; under mu.
func (e *ears) unwatch(w *watch) {
	if e.watches[w.id] != w {
		return
	}
	delete(e.watches, w.id)
	e.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: w.id}}})
}

func (e *ears) send(r *pb.WatchRequest) {
	e.out = append(e.out, r)
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// listen keeps a stream open as long as the store is.
func (e *ears) listen() {
	pause, heard := deafFirst, false
	for e.s.life.Err() == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(e.s.life))
		stream, err := e.open(ctx)
		if err == nil {
			if heard {
				e.tell([]driver.Signal{{Kind: driver.MissedSignal}})
			}
			begun := driver.Now()
			e.begin(cancel)
			e.hear(ctx, cancel, stream)
			if heard = true; driver.Now().Sub(begun) > deafLongest {
				pause = deafFirst
			}
		}
		cancel()
		select {
		case <-time.After(pause):
			pause = min(2*pause, deafLongest)
		case <-e.s.life.Done():
		}
	}
}

func (e *ears) open(ctx context.Context) (pb.Watch_WatchClient, error) {
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := e.s.ready(bounded); err != nil {
		return nil, err
	}
	return pb.NewWatchClient(e.s.client.ActiveConnection()).Watch(ctx, callOptions...)
}

func (e *ears) begin(cut context.CancelFunc) {
	e.s.book.mu.Lock()
	defer e.s.book.mu.Unlock()
	e.cut, e.heard, e.asked = cut, driver.Now(), 0
}

// silence is how long the stream may be quiet before it is asked whether it is
// still there, and then not answer: its server may have stopped, or be cut off.
// Those who hold have more time than those who wait.
const (
	silence     = 2 * time.Second
	longSilence = 8 * time.Second
)

// listens asks the stream whether it is there, if nothing was heard for a while;
// false if it does not answer, and then it is given up. Under mu.
func (e *ears) listens(patience time.Duration) bool {
	now := driver.Now()
	switch {
	case e.cut == nil:
		return false
	case e.asked != 0 && now.Sub(e.asked) > patience:
		e.cut()
		return false
	case e.asked == 0 && now.Sub(e.heard) > silence:
		e.asked = now
		e.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
	return true
}

// hear lives as long as a stream.
func (e *ears) hear(ctx context.Context, cancel context.CancelFunc, stream pb.Watch_WatchClient) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		e.talk(ctx, stream)
	}()
	for {
		answer, err := stream.Recv()
		if err != nil || !e.take(answer) {
			break
		}
	}
	cancel()
	<-sent
	e.deaf()
}

// talk sends what is to be sent.
func (e *ears) talk(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case <-e.kick:
		case <-ctx.Done():
			return
		}
		e.s.book.mu.Lock()
		out := e.out
		e.out = nil
		e.s.book.mu.Unlock()
		for _, r := range out {
			if stream.SendMsg(r) != nil {
				return // the reader learns why
			}
		}
	}
}

// deaf forgets the watches of a stream that has ended.
func (e *ears) deaf() {
	b := &e.s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(e.watches)
	e.out, e.cut = nil, nil
	for _, sc := range b.scenes {
		close(sc.ended)
	}
	clear(b.scenes)
	for _, entry := range b.entries {
		entry.own = nil
		for _, r := range entry.before {
			r.watch = nil
		}
	}
}

// take acts on an answer; false if the stream is of no use any more.
func (e *ears) take(answer *pb.WatchResponse) bool {
	b := &e.s.book
	var signals []driver.Signal
	b.mu.Lock()
	e.heard, e.asked = driver.Now(), 0
	w := e.watches[answer.WatchId]
	switch {
	case answer.Canceled && (w != nil || answer.Created):
		b.mu.Unlock() // not by us: compacted, or not allowed any more
		return false
	case w == nil:
	case answer.Created:
		if w.since = max(1, answer.Header.Revision); w.scene != nil {
			w.scene.ring()
		} else {
			b.stands(w.entry)
		}
	case w.scene != nil:
		w.scene.ring()
	default:
		for _, event := range answer.Events {
			signals = append(signals, b.happened(w, event)...)
		}
	}
	b.mu.Unlock()
	e.tell(signals)
	return true
}

// tell delivers signals; not under mu.
func (e *ears) tell(signals []driver.Signal) {
	if e.deliver == nil {
		return
	}
	for _, sig := range signals {
		if e.s.life.Err() == nil {
			e.deliver(sig)
		}
	}
}

// stands looks at a place again, once all its watches stand, if something may
// have happened since the latest look; under mu.
func (b *book) stands(e *entry) {
	if e.held || e.live() {
		return
	}
	if e.own == nil || e.own.since == 0 {
		return
	}
	for _, r := range e.needed() {
		if r.watch == nil || r.watch.since == 0 {
			return
		}
	}
	b.lookSoon(e)
}

// generation is the revision at which the key was created that is meant: keys are
// used again.
func (w *watch) generation() int64 {
	if w.rival != nil {
		return w.rival.place.created
	}
	return w.entry.created
}

// happened acts on what a watch saw; under mu.
func (b *book) happened(w *watch, event *mvccpb.Event) []driver.Signal {
	e := w.entry
	if since := w.generation(); event.Kv.ModRevision <= since {
		return nil // of the key's use before: the watch's server was behind the one that was asked
	}
	switch {
	case w.rival != nil && event.Type == mvccpb.DELETE:
		return b.gone(e, w)
	case w.rival != nil:
		return nil
	case event.Type == mvccpb.DELETE || ended(event.Kv, e):
		b.forget(e)
		if !e.held {
			return []driver.Signal{{Kind: driver.MissedSignal}} // the next beat is told
		}
		b.s.wg.Go(func() { b.s.tellLoss(e) })
		return nil
	}
	p, ok := readPlace(event.Kv)
	if !ok || p.created != e.created {
		return nil
	}
	was := e.broken
	if p.modified >= e.modified {
		e.changed(p)
	}
	if was == "" && p.broken != "" {
		return []driver.Signal{{Kind: driver.BrokenSignal, Owner: e.owner, Reason: p.broken}}
	}
	return nil
}

// ended tells whether another process has released the hold, whose record is kept.
func ended(kv *mvccpb.KeyValue, e *entry) bool {
	p, ok := readPlace(kv)
	return ok && p.kept && e.held && p.created == e.created
}

// gone strikes off one who was before the place. If it was the last one the
// place is granted; if others may be there, or more than we know, they are looked
// for: never is the going of one taken for a grant.
func (b *book) gone(e *entry, w *watch) []driver.Signal {
	b.s.ears.unwatch(w)
	for i, r := range e.before {
		if r == w.rival {
			e.before = append(append([]*rival(nil), e.before[:i]...), e.before[i+1:]...)
			break
		}
	}
	if e.ahead > 0 {
		e.ahead--
	}
	switch {
	case e.held:
	case e.fits() && e.live():
		return []driver.Signal{b.win(e)}
	case e.mode != driver.Permits && e.all && len(e.before) > 0:
	default:
		b.lookSoon(e)
	}
	return nil
}

// tellLoss tells that a hold's key was deleted, and why if that is known.
func (s *store) tellLoss(e *entry) {
	ctx, cancel := context.WithTimeout(s.life, lookTime)
	defer cancel()
	sig := driver.Signal{Kind: driver.LostSignal, Owner: e.owner, Reason: s.forced(ctx, e.name.Key, e.owner)}
	s.ears.tell([]driver.Signal{sig})
}

// forced is the reason of a break by force, as long as its tombstone stands.
func (s *store) forced(ctx context.Context, key string, owner driver.Owner) string {
	answer, err := s.commit(ctx, txn{then: []clientv3.Op{clientv3.OpGet(tombKey(key, &owner))}})
	if err != nil || answer.Responses[0].GetResponseRange().Count == 0 {
		return ""
	}
	return string(answer.Responses[0].GetResponseRange().Kvs[0].Value)
}
