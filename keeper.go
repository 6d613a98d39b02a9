package holdfast

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// keeper is the client's alarm clock: one timer and a heap of what is due when.
// It renews holds and tells their loss, beats places, and sends debts again.
// It never waits for the store: every batch travels on its own goroutine, so
// that one that hangs delays no other, and no deadline is missed meanwhile.
type keeper struct {
	c      *Client
	heap   alarms
	latest *alarm // that was set last, if it still is: the last of its chain
	timer  *time.Timer
	next   driver.Instant // when the timer is set for
}

// alarm is an entry of the heap: of a hold, a batch of renewals that is away, a
// place, a waiter or a debt. Alarms for the same instant that are set one after
// the other hang behind the first of them: the renewals of many leases then cost
// no search through a heap that has long left the processor's caches.
type alarm struct {
	at         driver.Instant
	set        bool
	index      int // in the heap, if first of its chain
	prev, next *alarm

	hold   *hold
	place  *place
	debt   *debt
	waiter *waiter
	batch  *batch
}

// init makes the timer; it is not set yet.
func (k *keeper) init(c *Client) {
	k.c, k.next = c, never
	k.timer = time.AfterFunc(time.Hour, k.ring)
	k.timer.Stop()
}

func (k *keeper) schedule(h *hold) {
	if h.ended {
		return
	}
	h.alarm.hold, h.alarm.at = h, h.nextAlarm()
	k.set(&h.alarm)
}

func (k *keeper) place(a *alarm, p *place) {
	a.place = p
	k.set(a)
}

// set puts an alarm into the heap, or moves it. The timer is only touched for
// an earlier one: an alarm that is cancelled before its time costs nothing but
// an idle ring.
func (k *keeper) set(a *alarm) {
	k.cancel(a)
	if a.at == never {
		return
	}
	if last := k.latest; last != nil && last.at == a.at {
		a.prev, last.next = last, a
	} else {
		heap.Push(&k.heap, a)
	}
	a.set, k.latest = true, a
	if a.at < k.next {
		k.arm(a.at)
	}
}

// suspendCheck is how long the timer runs at most: it stands still while the
// machine is suspended, and what is lost then must be told soon after.
const suspendCheck = 2 * time.Second

func (k *keeper) arm(at driver.Instant) {
	k.next = at
	k.timer.Reset(min(max(0, at.Until()), suspendCheck))
}

func (k *keeper) cancel(a *alarm) {
	if !a.set {
		return
	}
	switch first, next := a.prev == nil, a.next; {
	case first && next == nil:
		heap.Remove(&k.heap, a.index)
	case first:
		next.index, k.heap[a.index].alarm = a.index, next
	default:
		a.prev.next = next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	if k.latest == a {
		k.latest = a.prev
	}
	a.set, a.prev, a.next = false, nil, nil
}

// ring handles what is due and sets the timer for what comes next.
func (k *keeper) ring() {
	c := k.c
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	c.keeping.Add(1)
	defer c.keeping.Done()
	k.next = never
	d := k.collect(driver.Now())
	d.batches = k.batches(d.renewals)
	if len(k.heap) > 0 {
		k.arm(k.heap[0].at)
	}
	c.mu.Unlock()
	for _, bye := range d.byes { // all of them before any hook that may take its time
		bye.end()
	}
	d.send(c)
	for _, bye := range d.byes {
		bye.tell()
	}
	for _, tell := range d.waits {
		tell()
	}
}

// due is what one ring found to do, by shard.
type due struct {
	byes     []*farewell
	waits    []func()
	renewals map[int][]*hold
	batches  []*batch // of the renewals
	beats    map[int][]*place
	debts    []*debt
}

func (k *keeper) collect(now driver.Instant) *due {
	d := &due{renewals: map[int][]*hold{}, beats: map[int][]*place{}}
	for len(k.heap) > 0 && k.heap[0].at <= now {
		a := k.heap[0].alarm
		if a.hold != nil {
			k.dueHold(d, a.hold, now) // moves or removes it
			continue
		}
		k.cancel(a)
		switch {
		case a.batch != nil:
			k.dueBatch(d, a.batch, now)
		case a.place != nil:
			shard := k.c.shard(a.place.ref())
			d.beats[shard] = append(d.beats[shard], a.place)
		case a.waiter != nil:
			if tell := a.waiter.news(now); tell != nil {
				d.waits = append(d.waits, tell)
			}
		default:
			d.debts = append(d.debts, a.debt)
		}
	}
	return d
}

func (k *keeper) dueHold(d *due, h *hold, now driver.Instant) {
	if h.lingerUntil != 0 && now >= h.lingerUntil {
		k.c.endLinger(h)
		return
	}
	if now >= driver.Instant(h.deadline.Load()) {
		d.byes = append(d.byes, k.c.expire(h))
		return
	}
	k.cancel(&h.alarm) // its batch looks after the deadline
	shard := k.c.shard(h.ref())
	d.renewals[shard] = append(d.renewals[shard], h)
}

// dueBatch loses the holds whose deadline passes while their batch is away.
func (k *keeper) dueBatch(d *due, b *batch, now driver.Instant) {
	for _, h := range b.holds {
		if !h.ended && now >= driver.Instant(h.deadline.Load()) {
			d.byes = append(d.byes, k.c.expire(h))
		}
	}
	k.watch(b)
}

// batches divides what is to be renewed, by shard; under mu.
func (k *keeper) batches(renewals map[int][]*hold) (all []*batch) {
	for _, holds := range renewals {
		// Those that may not travel in a large batch do not split that of the rest.
		slices.SortStableFunc(holds, func(a, b *hold) int { return cmp.Compare(b.travelsWith(), a.travelsWith()) })
		for len(holds) > 0 {
			n := batchSize(k.c.maxBatch, holds)
			b := &batch{holds: holds[:n], answered: make(chan struct{})}
			for _, h := range b.holds {
				h.asking = b.answered
			}
			k.watch(b)
			all, holds = append(all, b), holds[n:]
		}
	}
	return all
}

// watch sets the batch's alarm to the first deadline of its holds.
func (k *keeper) watch(b *batch) {
	b.alarm.batch, b.alarm.at = b, never
	for _, h := range b.holds {
		if !h.ended {
			b.alarm.at = min(b.alarm.at, driver.Instant(h.deadline.Load()))
		}
	}
	k.set(&b.alarm)
}

// send starts what is due, each batch on its own goroutine.
func (d *due) send(c *Client) {
	for _, b := range d.batches {
		c.keeping.Go(func() { c.renew(b) })
	}
	for _, places := range d.beats {
		for len(places) > 0 {
			n := min(c.maxBatch, len(places))
			batch := places[:n]
			c.keeping.Go(func() { c.beat(batch) })
			places = places[n:]
		}
	}
	for _, owed := range d.debts {
		c.keeping.Go(func() { c.pay(owed) })
	}
}

// alarms is a heap by time. The times lie beside each other, so that looking for
// an alarm's place touches few alarms.
type alarms []entry

type entry struct {
	at driver.Instant
	*alarm
}

func (s alarms) Len() int           { return len(s) }
func (s alarms) Less(i, j int) bool { return s[i].at < s[j].at }
func (s alarms) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *alarms) Push(x any) {
	a := x.(*alarm) //nolint:errcheck,forcetypeassert // nothing else is pushed
	a.index = len(*s)
	*s = append(*s, entry{a.at, a})
}

func (s *alarms) Pop() any {
	last := len(*s) - 1
	a := (*s)[last].alarm
	(*s)[last] = entry{}
	*s = (*s)[:last]
	return a
}
