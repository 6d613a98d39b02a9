package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var nameCases = []Case{
	{
		ID: "E2.1", Rule: "Any name of 1 to 512 bytes of UTF-8 is one lock for two clients.",
		Quick: true, Func: anyName,
		Kills: []string{"try takes a place"},
	},
	{
		ID: "E2.2", Rule: "Names that differ in case, length, a separator or one byte at the end are different locks.",
		Quick: true, Func: namesDiffer,
		Kills: []string{"case folded", "names cut"},
	},
	{
		ID: "E2.3", Rule: "Clients of different prefixes never meet.",
		Func:  prefixesDiffer,
		Kills: []string{"case folded"},
	},
	{
		ID: "E2.4", Rule: "A lock and a semaphore, or semaphores of two limits, under one name are ErrConflict.",
		Needs: NeedPermits, Func: oneKind,
		Kills: []string{"one kind ignored"},
	},
	{
		ID: "E2.5", Rule: "Listing gives each name as it was called, those of a prefix only, and none that is free.",
		Needs: NeedList, Func: lists,
		Kills: []string{"list of keys"},
	},
	{
		ID: "E2.6", Rule: "Inspecting tells who holds and who waits, in order, and disturbs nobody.",
		Needs: NeedInspect, Func: inspects,
		Kills: []string{"owner is the client", "ghost waiter", "waiters reversed"},
	},
	{
		ID: "E2.7", Rule: "Keys as long as the store admits are different locks if their last byte differs.",
		Func:  longKeys,
		Kills: []string{"case folded", "names cut"},
	},
}

func anyName(t *T) {
	a, b := t.Client(), t.Client()
	unique := t.LockName() + " "
	var names []string
	for _, size := range []int{63, 64, 65, 66, 128, 192, 193, 250, 251, 255, 256, 512} {
		if size > len(unique) {
			names = append(names, unique+strings.Repeat("x", size-len(unique)))
		}
	}
	for _, odd := range []string{
		strings.Repeat("ä", 33), strings.Repeat("漢", 64), "🔒", "مرحبا", " leading and trailing ", "%2e%2e/../..",
		`back\slash`, "new\nline\ttab", "quote'\"`;--", "{tag}", "*?[a-z]", "..", ".", "a:b", "\u200b", strings.Repeat("\\", 300),
	} {
		names = append(names, unique+odd)
	}
	for _, name := range names {
		l := t.gets(a, name, nil)
		if l.Name() != name {
			t.Errorf("the lease calls %q %q", name, l.Name())
		}
		t.busy(b, name, nil, fmt.Sprintf("name %q", name))
		t.frees(l)
		t.frees(t.gets(b, name, nil))
	}
}

func namesDiffer(t *T) {
	a, b := t.Client(), t.Client()
	base := t.LockName()
	long := base + strings.Repeat("y", 300)
	names := []string{
		base, base + "/", base + "/1", base + "x", base + "xy", strings.ToUpper(base), base + "X", base + " ",
		base + "e\u0301", base + "\u00e9", // é, combining and composed
		long + "a", long + "b", long + "A", base + "%2f", base + "~", base + "_", base + "\\",
	}
	var leases []*holdfast.Lease
	for i, name := range names {
		// If two were one, the second could not be taken.
		leases = append(leases, t.gets([]*holdfast.Client{a, b}[i%2], name, nil))
	}
	for i, name := range names {
		t.busy([]*holdfast.Client{b, a}[i%2], name, nil, fmt.Sprintf("name %q", name))
	}
	for i, l := range leases {
		t.frees(l)
		if next := i + 1; next < len(names) {
			t.busy([]*holdfast.Client{b, a}[next%2], names[next], nil, fmt.Sprintf("name %q, when %q was released", names[next], names[i]))
		}
	}
}

func prefixesDiffer(t *T) {
	name := t.LockName()
	prefixes := []string{"", "app1", "app10", "APP1", "app1."}
	var leases []*holdfast.Lease
	for _, prefix := range prefixes {
		leases = append(leases, t.gets(t.ClientWith(&holdfast.Options{Prefix: prefix}), name, nil))
	}
	for _, prefix := range prefixes {
		t.busy(t.ClientWith(&holdfast.Options{Prefix: prefix}), name, nil, "prefix "+prefix)
	}
	if t.props.List {
		for r, err := range t.ClientWith(&holdfast.Options{Prefix: "app1"}).List(t.ctx, "") {
			if err != nil {
				t.Fatalf("List: %v", err)
			}
			if strings.HasPrefix(r.Name, "conformance/"+t.run) && (r.Name != name || len(r.Holders) > 0 && r.Holders[0].Owner != leases[1].Owner()) {
				t.Errorf("the list of prefix app1 names %q of another", r.Name)
			}
		}
	}
	for _, l := range leases {
		t.frees(l)
	}
}

func oneKind(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	of := func(limit int) *holdfast.AcquireOptions { return &holdfast.AcquireOptions{Permits: 1, Limit: limit} }
	conflicts := func(o *holdfast.AcquireOptions, what string) {
		l, err := b.TryAcquire(t.ctx, name, o)
		if err == nil {
			t.frees(l)
		}
		t.is(err, holdfast.ErrConflict, what)
	}
	l := t.locks(a, name, of(3))
	conflicts(of(4), "a semaphore of another limit")
	conflicts(nil, "a lock under a semaphore's name")
	t.frees(t.gets(b, name, of(3)))
	t.frees(l)
	l = t.locks(a, name, nil)
	conflicts(of(3), "a semaphore under a lock's name")
	t.frees(l)
	t.frees(t.gets(b, name, of(4))) // nobody used it, so it may become another thing
}

func lists(t *T) {
	a, b := t.Client(), t.Client()
	base := t.LockName()
	names := []string{base + "/1", base + "/2 mit Ümlaut", base + "/" + strings.Repeat("l", 400)}
	held := map[string]*holdfast.Lease{}
	for _, name := range names {
		held[name] = t.gets(a, name, &holdfast.AcquireOptions{Label: "lister"})
	}
	t.frees(t.gets(a, base+"/free", nil))
	other := t.gets(a, t.LockName(), nil)
	seen := map[string]int{}
	for r, err := range b.List(t.ctx, base+"/") {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		seen[r.Name]++
		if l := held[r.Name]; l == nil {
			t.Errorf("%q is listed, which is not held or not of the prefix", r.Name)
		} else if len(r.Holders) != 1 || r.Holders[0].Owner != l.Owner() {
			t.Errorf("%q: holders %+v, want %s", r.Name, r.Holders, l.Owner())
		}
	}
	for name, l := range held {
		if seen[name] != 1 {
			t.Errorf("%q is listed %d times", name, seen[name])
		}
		t.frees(l)
	}
	t.frees(other)
}

func inspects(t *T) {
	a, b := t.peers()
	inspector, ok := b.Store.(driver.Inspector)
	if !ok {
		t.Fatalf("not an Inspector")
	}
	n := t.Name()
	look := func(holders, waiters int) driver.Record {
		r, err := inspector.Inspect(t.ctx, n)
		if err != nil {
			t.Fatalf("Inspect: %v", err)
		}
		if len(r.Holders) != holders || r.Waiters != nil && len(r.Waiters) != waiters {
			t.Fatalf("%d holders and %d waiters, want %d and %d", len(r.Holders), len(r.Waiters), holders, waiters)
		}
		return r
	}
	look(0, 0)
	h := a.granted(n)
	r := look(1, 0)
	holder := r.Holders[0]
	if holder.Owner != h.Owner || holder.Label != "drivertest" || holder.Token != h.Token || holder.Left > longTTL+t.props.Granularity {
		t.Errorf("the holder is %+v, want owner %x, token %d", holder, h.Owner, h.Token)
	}
	if t.props.Wait == driver.ByPlaces {
		w1, w2 := b.place(n), a.place(n)
		if r = look(1, 2); len(r.Waiters) == 2 && (r.Waiters[0].Owner != w1.Owner || r.Waiters[1].Owner != w2.Owner) {
			t.Errorf("the waiters are not in order: %+v", r.Waiters)
		}
		b.abandoned(w1)
		a.abandoned(w2)
		look(1, 0)
	}
	a.keeps(h.Ref, driver.Renewed, "an inspected grant")
	a.frees(h)
	look(0, 0)
	b.frees(b.granted(n))
}

func longKeys(t *T) {
	a, b := t.peers()
	size := t.props.Names.MaxBytes
	if size < 80 {
		t.Fatalf("the store admits keys of %d bytes, want 80 at least", size)
	}
	base := t.Name()
	stem := base.Key + strings.Repeat("k", max(0, size-1-len(base.Key)))
	var holds []hold
	ends := []string{"a", "b", "0", "_", "~"}
	if !t.props.Names.Portable {
		ends = append(ends, "A", "B", " ", "/")
	}
	for _, end := range ends {
		n := driver.Name{Key: stem[:min(len(stem), size-1)] + end, Full: base.Full + end}
		holds = append(holds, a.granted(n))
		b.refused(n, "a long key")
	}
	for _, h := range holds {
		a.frees(h)
	}
}

// The sugar is the same lock by another name.
func sugar(t *T) {
	a, b := t.Client(), t.Client()
	name := t.LockName()
	l, err := a.Mutex(name).Lock(t.ctx)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	_, err = b.Mutex(name).TryLock(t.ctx)
	t.is(err, holdfast.ErrHeld, "TryLock")
	t.frees(l)
	if t.props.Shared {
		t.sugarRW(a, b)
	}
	if !t.props.Permits {
		return
	}
	s := t.LockName()
	ctx, cancel := context.WithTimeout(t.ctx, liveness)
	defer cancel()
	if l, err = a.Semaphore(s, 2).Acquire(ctx, 2); err != nil {
		t.Fatalf("Semaphore: %v", err)
	}
	if _, err = b.Semaphore(s, 2).TryAcquire(t.ctx, 1); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("a third permit of two: %v", err)
	}
	t.frees(l)
}

func (t *T) sugarRW(a, b *holdfast.Client) {
	name := t.LockName()
	r1, err := a.RWMutex(name).RLock(t.ctx)
	if err != nil {
		t.Fatalf("RLock: %v", err)
	}
	r2, err := b.RWMutex(name).TryRLock(t.ctx)
	if err != nil {
		t.Fatalf("TryRLock beside a reader: %v", err)
	}
	_, err = b.RWMutex(name).TryLock(t.ctx)
	t.is(err, holdfast.ErrHeld, "TryLock beside readers")
	t.frees(r1)
	t.frees(r2)
	w, err := b.RWMutex(name).Lock(t.ctx)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	_, err = a.RWMutex(name).TryRLock(t.ctx)
	t.is(err, holdfast.ErrHeld, "TryRLock beside a writer")
	t.frees(w)
}
