package drivertest

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
)

// Benching is what Benchmark needs of a *testing.B.
type Benching[B any] interface {
	Run(name string, f func(B)) bool
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
	Loop() bool
	ReportAllocs()
}

// Benchmark measures a store through the client: a pair of acquire and release
// of one free name, one name wanted by four callers each of two clients, and
// 64 names at once.
func Benchmark[B Benching[B]](b B, h Harness) {
	b.Run("pair", func(b B) {
		c := benchClient(b, &h)
		defer closeBench(b, c)
		b.ReportAllocs()
		for b.Loop() {
			pair(b, c, "bench/pair")
		}
	})
	b.Run("contended", func(b B) {
		cs := []*holdfast.Client{benchClient(b, &h), benchClient(b, &h)}
		defer closeBench(b, cs...)
		share(b, 8, func(i int) { pair(b, cs[i%2], "bench/contended") })
	})
	b.Run("64names", func(b B) {
		c := benchClient(b, &h)
		defer closeBench(b, c)
		share(b, 64, func(i int) { pair(b, c, "bench/"+strconv.Itoa(i)) })
	})
}

// share lets n goroutines do the rounds of a benchmark among them.
func share[B Benching[B]](b B, n int, f func(i int)) {
	rounds := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	for i := range n {
		go func() {
			for range rounds {
				f(i)
			}
			if left.Add(-1) == 0 {
				close(done)
			}
		}()
	}
	for b.Loop() {
		rounds <- struct{}{}
	}
	close(rounds)
	<-done
}

func pair[B Benching[B]](b B, c *holdfast.Client, name string) {
	l, err := c.Acquire(b.Context(), name, nil)
	if err == nil {
		err = l.Release(b.Context())
	}
	if err != nil {
		b.Errorf("%v", err)
	}
}

func benchClient[B Benching[B]](b B, h *Harness) *holdfast.Client {
	store, err := h.New(b.Context())
	if err != nil {
		b.Fatalf("opening the store: %v", err)
	}
	c, err := holdfast.New(store, nil)
	if err != nil {
		b.Fatalf("New: %v", err)
	}
	return c
}

func closeBench[B Benching[B]](b B, clients ...*holdfast.Client) {
	for _, c := range clients {
		if err := c.Close(); err != nil {
			b.Fatalf("Close: %v", err)
		}
	}
}
