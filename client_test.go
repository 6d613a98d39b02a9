package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		srv := memlock.NewServer()
		a, _ := holdfast.New(srv.Store(), nil)
		b, _ := holdfast.New(srv.Store(), nil)
		l, err := a.Acquire(ctx, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryAcquire(ctx, "x", nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		} else {
			t.Log(err)
		}
		time.Sleep(5 * time.Minute)
		if !l.Valid() {
			t.Fatal("lost")
		}
		go func() { time.Sleep(20 * time.Second); l.Release(ctx) }()
		start := time.Now()
		l2, err := b.Acquire(ctx, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(time.Since(start), l2.Token() > l.Token())
		time.Sleep(5 * time.Minute)
		if !l2.Valid() {
			t.Fatal("lost 2")
		}
		_, err = a.Acquire(ctx, "x", &holdfast.AcquireOptions{Wait: 3 * time.Second})
		t.Log(err)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		l3, err := a.TryAcquire(ctx, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = l3
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCounter(t *testing.T) {
	srv := memlock.NewServer()
	n := 0
	var wg sync.WaitGroup
	start := time.Now()
	for range 4 {
		c, _ := holdfast.New(srv.Store(), nil)
		defer c.Close()
		for range 64 {
			wg.Go(func() {
				for range 100 {
					l, err := c.Acquire(context.Background(), "x", nil)
					if err != nil {
						t.Error(err)
						return
					}
					n++
					if err := l.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Log(n, time.Since(start))
}
