package holdfast

import (
	"context"
	"fmt"
)

// Mutex is a name to be held by one at a time, with the client's defaults. It
// holds no state: the lease is what is held.
type Mutex struct {
	c    *Client
	name string
}

// Mutex returns the mutex of a name.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{c, name} }

// Lock is [Client.Acquire].
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.c.Acquire(ctx, m.name, nil) }

// TryLock is [Client.TryAcquire].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.c.TryAcquire(ctx, m.name, nil) }

// RWMutex is a name to be held by one writer or many readers. A waiting writer
// stops new readers. There is no upgrade: a writer may not be a reader before
// (ErrConflict).
type RWMutex struct {
	c    *Client
	name string
}

// RWMutex returns the read-write mutex of a name.
func (c *Client) RWMutex(name string) *RWMutex { return &RWMutex{c, name} }

// Lock acquires the name for writing.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.c.Acquire(ctx, m.name, nil) }

// TryLock tries to acquire the name for writing.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.c.TryAcquire(ctx, m.name, nil)
}

// RLock acquires the name for reading.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.c.Acquire(ctx, m.name, &AcquireOptions{Mode: Shared})
}

// TryRLock tries to acquire the name for reading.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.c.TryAcquire(ctx, m.name, &AcquireOptions{Mode: Shared})
}

// Semaphore is a name of which a limited number of permits can be held; for
// other options see AcquireOptions.Permits. All
// who use the name must agree on the limit (ErrConflict). Requests for several
// permits are served strictly in order.
type Semaphore struct {
	c     *Client
	name  string
	limit int
}

// Semaphore returns the semaphore of a name and a limit.
func (c *Client) Semaphore(name string, limit int) *Semaphore { return &Semaphore{c, name, limit} }

// Acquire waits for n permits.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	if n < 1 {
		return nil, s.refuse(n)
	}
	return s.c.Acquire(ctx, s.name, &AcquireOptions{Permits: n, Limit: s.limit})
}

// TryAcquire tries to get n permits.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	if n < 1 {
		return nil, s.refuse(n)
	}
	return s.c.TryAcquire(ctx, s.name, &AcquireOptions{Permits: n, Limit: s.limit})
}

// refuse is for what AcquireOptions would take for "not a semaphore".
func (s *Semaphore) refuse(n int) error {
	return s.c.errorf("acquire", s.name, ErrInvalid, fmt.Errorf("permits %d of %d: at least 1", n, s.limit))
}
