package holdfast_test

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

var sink int64

// The clock that a lease is trusted on: what Valid is measured against.
func BenchmarkClock(b *testing.B) {
	for b.Loop() {
		sink = int64(driver.Now())
	}
}

func BenchmarkValid(b *testing.B) {
	c, err := holdfast.New(memlock.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	l, err := c.Acquire(b.Context(), "x", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !l.Valid() {
			b.Fatal("lost")
		}
	}
}

// One caller, no contention.
func BenchmarkPair(b *testing.B) {
	c, err := holdfast.New(memlock.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Acquire(b.Context(), "x", nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = l.Release(b.Context())
	}
}

// 256 callers of one process hand one name on.
func BenchmarkHandOver256(b *testing.B) {
	c, err := holdfast.New(memlock.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, err := c.Acquire(b.Context(), "x", nil)
			if err != nil {
				b.Error(err)
				return
			}
			_ = l.Release(b.Context())
		}
	})
}
