package cli

import (
	"cmp"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// lockOptions shape an acquire.
type lockOptions struct {
	ttl     time.Duration // 0: the library's default
	wait    time.Duration // 0: for ever, unless try
	try     bool          // --wait 0
	tries   int
	shared  bool
	slots   int
	label   string
	minHold time.Duration
}

// defineLease makes the flags of every lease.
func (o *lockOptions) defineLease(f *flags) {
	f.duration(&o.ttl, "ttl", holdfast.MinTTL, "`time` that the lock outlives a holder that gives no sign of life; default 30s")
	f.StringVar(&o.label, "label", "", "who we are, as others see it (`text`); default HOST/COMMAND[PID]")
}

func (o *lockOptions) define(f *flags) {
	o.defineLease(f)
	f.value("wait", "`0|TIME|forever`: how long to wait for the lock; default "+o.waitDefault(), func(s string) (err error) {
		o.wait, o.try = 0, s == "0"
		if o.try || s == "forever" {
			return nil
		}
		if o.wait, err = parseDuration(s); err == nil && o.wait <= 0 {
			err = errors.New("must be 0, forever, or longer than 0")
		}
		return err
	})
	f.integer(&o.tries, "tries", 1<<20, "make at most so many attempts, without a place in the queue (`number`)")
	f.BoolVar(&o.shared, "shared", false, "hold it together with others who hold it shared")
	f.integer(&o.slots, "slots", holdfast.MaxPermits, "the name is a semaphore: hold one of so many permits (`number`)")
}

// waitDefault is what --wait is if nobody says it.
func (o *lockOptions) waitDefault() string {
	if o.try {
		return "0"
	}
	return "forever"
}

func (o *lockOptions) validate(f *flags) {
	if o.shared && o.slots > 0 {
		f.problem("--shared and --slots: a name is either a lock or a semaphore")
	}
	if o.try && o.tries > 1 {
		f.problem("--wait 0 is one attempt, --tries %d are more", o.tries)
	}
	if len(o.label) > holdfast.MaxLabelBytes || !utf8.ValidString(o.label) {
		f.problem("--label: must be UTF-8 of at most %d bytes", holdfast.MaxLabelBytes)
	}
}

// lease is the TTL in force.
func (o *lockOptions) lease() time.Duration { return cmp.Or(o.ttl, holdfast.DefaultTTL) }

func (o *lockOptions) options() *holdfast.AcquireOptions {
	a := &holdfast.AcquireOptions{TTL: o.ttl, MinHold: o.minHold, Wait: o.wait, Tries: o.tries, Label: o.label}
	if o.shared {
		a.Mode = holdfast.Shared
	}
	if o.slots > 0 {
		a.Permits, a.Limit = 1, o.slots
	}
	return a
}
