// Package holdfast lets many processes on many machines agree on who may act:
// one lock API over the store that you already run, with fencing tokens,
// leases that renew themselves and tell you when they are lost, fair queues,
// read-write locks and semaphores.
//
//	locks, err := holdfast.Open(ctx, "file:///run/lock/myapp", nil)
//	if err != nil { … }
//	defer locks.Close()
//
//	err = locks.Do(ctx, "draw/2026-11", nil, func(ctx context.Context, lease *holdfast.Lease) error {
//		return draw(ctx, lease.Token()) // ctx ends if the lease is lost
//	})
//
// The package of the store must be imported, e.g.
//
//	import _ "github.com/holdfast-go/holdfast/filelock"
//
// # What a lease is worth
//
// A lease is trusted until its deadline on this process's own clock, which
// falls before the store can give the name to another. When it is lost,
// [Lease.Context] ends and [Lease.Valid] is false. Neither can stop a write
// that is already on its way, or that of a process which was suspended between
// the check and the write: only a resource that refuses the fencing token of
// an older grant can ([Lease.Token]). Use all three: Do's context for the
// work, Valid right before a side effect, the token at the resource.
//
// How strong exclusion is depends on the store; see [Class], and
// docs/guarantees.md for what each store may lose under which fault.
//
// # Three contexts
//
// The ctx of an acquire bounds the wait, never the hold. The hold ends with
// Release, loss, or Close. Release does its work even if its ctx has ended.
package holdfast
