// Package memlock is a lock store in the memory of one process: for tests,
// examples and programs that may later move to a shared store. It is also the
// reference for lease stores with a queue: what a server-side script must do is
// written here in the plainest form (server.go).
//
// Do not use it to keep two processes apart: each has its own.
//
// # URLs
//
// memory:// is one server for the whole process; memory://name is another one
// for each name. There are no parameters.
//
// # Guarantees
//
// Class B: exclusion holds as long as the process lives. Fair queue, shared
// holds, permits, fencing tokens, break, handles, list, inspect and
// value. Leases end on the process's monotonic clock.
package memlock
