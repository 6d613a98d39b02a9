// Package redislock is the lock store on one Redis or Valkey server (6.2 or
// later), over the client rueidis.
//
// # URLs
//
//	redis://[user:password@]host[:port][/db]      rediss:// is the same over TLS
//
//	password-file=PATH   the password is the file's first line
//	durable=true         see Options.Durable
//
// Without a password in the URL or a file, HOLDFAST_REDIS_PASSWORD is used if
// it is set.
//
// # How a lock is made
//
// A name has one record, which a server-side script writes in one atomic step
// with the grant and its fencing token; only the server's clock counts. An
// uncontended hold is that record and nothing else. Waiters have places in a
// queue beside it. The release grants the next of them in its own step, for a
// short claim window, and tells that one's client on a channel of its own.
// Attempts, renewals, releases and heartbeats that are made in the same moment
// are one script call. docs/wire.md has the format.
//
// Tokens come from 1,024 counters, one for each bucket of names, which are
// never below the server's clock: so they grow also when a record has expired,
// or when the server came back without its data. Nothing is kept of a free
// name.
//
// # Guarantees
//
// Class C if the server says that it syncs each write to its append-only file
// (appendfsync always) and evicts nothing; else class D, and Warnings say why. A
// clock that is stepped forward ends leases early on either. Replicas and their
// failover are not covered: class D whatever they are.
//
// # The client
//
// [New] takes a client of the user's. It never closes it. Commands of ours are never
// repeated by the client, as scripts are not read-only; do not set ConnLifetime,
// which may repeat what it cut.
//
// # Permissions
//
// The least that an ACL user needs: the keys hf:*, hfq:*, hfh:*, hft:* and hfx:*, the
// channels hfc:*, and the commands of docs/store-redis.md.
package redislock
