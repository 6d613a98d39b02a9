package drivertest_test

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

var valueMutants = []mutant{
	{"value unread", "a value is taken and nobody can read it", func(b *broken) {
		b.leader = func(h *driver.Holder) *driver.Holder { h.Value, h.Seq = "", 0; return h }
	}},
	{"first value stays", "a second value is taken and not kept", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			if h, err := b.full.Leader(ctx, r.Name); err == nil && h != nil && h.Owner == r.Owner && h.Seq > 0 {
				return true, nil
			}
			return b.full.SetValue(ctx, r)
		}
	}},
	{"value of anybody", "a value goes to whoever holds the name", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			r.Ref = b.present(r.Ref)
			return b.full.SetValue(ctx, r)
		}
	}},
	{"late value wins", "the value that arrives last is kept, whatever its number", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			return b.renumbered(ctx, r)
		}
		b.leader = b.numbered
	}},
	{"value of the name", "the value is the name's, and the next holder begins with it", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			held, err := b.full.SetValue(ctx, r)
			if held {
				b.w.values.Store(r.Name.Key, *r)
			}
			return held, err
		}
		b.leader = func(h *driver.Holder) *driver.Holder {
			if req := b.request(h.Owner); h.Seq == 0 && req != nil {
				if last, ok := b.w.values.Load(req.Name.Key); ok {
					said := last.(driver.ValueRequest) //nolint:errcheck,forcetypeassert // stored above
					h.Value, h.Seq = said.Value, said.Seq
				}
			}
			return h
		}
	}},
	{"value extends", "setting a value renews the lease", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			if req := b.request(r.Owner); req != nil {
				b.one(ctx, driver.RenewRequest{Ref: r.Ref, TTL: req.TTL})
			}
			return b.full.SetValue(ctx, r)
		}
	}},
	{"renewal wipes the value", "a renewal writes the record anew, without the value", func(b *broken) {
		b.renew = func(ctx context.Context, r driver.RenewRequest) driver.RenewResult {
			b.w.values.Store(r.Owner, true)
			return b.one(ctx, r)
		}
		b.leader = func(h *driver.Holder) *driver.Holder {
			if _, wiped := b.w.values.Load(h.Owner); wiped {
				h.Value, h.Seq = "", 0
			}
			return h
		}
	}},
	{"value cut", "a value is cut after 255 bytes", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			r.Value = r.Value[:min(255, len(r.Value))]
			return b.full.SetValue(ctx, r)
		}
	}},
	{"reader leads", "one who holds shared is called the leader", func(b *broken) {
		b.leads = func(n driver.Name) *driver.Holder {
			if hs := b.look(n).Holders; len(hs) > 0 {
				return &hs[0]
			}
			return nil
		}
	}},
	{"leader of a kept name", "a name that is kept after the release has a leader", func(b *broken) {
		b.leads = func(n driver.Name) *driver.Holder {
			if hs := b.look(n).Holders; len(hs) == 1 && hs[0].Mode == driver.Exclusive {
				return &hs[0]
			}
			return nil
		}
	}},
	{"refusal of a value untrue", "a value with an ended context is set, and the answer is that nothing was done", func(b *broken) {
		b.setValue = func(ctx context.Context, r *driver.ValueRequest) (bool, error) {
			held, err := b.full.SetValue(context.WithoutCancel(ctx), r)
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			return held, err
		}
	}},
	{"value not inspected", "inspection leaves the value away", func(b *broken) {
		b.inspect = func(r driver.Record) driver.Record {
			for i := range r.Holders {
				r.Holders[i].Value, r.Holders[i].Seq = "", 0
			}
			return r
		}
	}},
	{"watch falls asleep", "a watch tells of the first changes and then of nothing", func(b *broken) {
		b.watch = func(changed func()) func() {
			told := 0
			return func() {
				if told++; told < 4 {
					changed()
				}
			}
		}
	}},
}

// renumbered sets a value under the next number that the server takes.
func (b *broken) renumbered(ctx context.Context, r *driver.ValueRequest) (bool, error) {
	h, err := b.full.Leader(ctx, r.Name)
	said := *r
	if err == nil && h != nil {
		said.Seq = h.Seq + 1
	}
	held, err := b.full.SetValue(ctx, &said)
	if held {
		b.w.values.Store(r.Owner, r.Seq)
	}
	return held, err
}

// numbered gives back the number that was asked for.
func (b *broken) numbered(h *driver.Holder) *driver.Holder {
	if seq, ok := b.w.values.Load(h.Owner); ok {
		h.Seq = seq.(uint64) //nolint:errcheck,forcetypeassert // stored above
	}
	return h
}
