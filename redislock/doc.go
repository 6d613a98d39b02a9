// Package redislock is the lock store on Redis or Valkey (6.2 or later): on one
// server, on a master that Sentinel watches, or in a Cluster, over the client
// rueidis.
//
// # URLs
//
//	redis://[user:password@]host[:port][/db]
//	redis+sentinel://[user:password@]host,host/MASTER[/db]
//	redis+cluster://[user:password@]host,host
//
// With rediss in place of redis it is the same over TLS. docs/store-redis.md has
// the parameters.
//
// # How a lock is made
//
// A name has one record, which a server-side script writes in one atomic step
// with the grant and its fencing token; only the server's clock counts. An
// uncontended hold is that record and nothing else. Waiters have places in a
// queue beside it. The release grants the next of them in its own step, for a
// short claim window, and tells that one's client on a channel of its own.
// Attempts, renewals, releases and heartbeats that are made in the same moment
// are one script call; in a cluster, those of one bucket of names. docs/wire.md has the format.
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
// clock that is stepped forward ends leases early on either. Sentinel and Cluster
// are class D: a failover may forget the latest grants. Options.Wait narrows that.
//
// # The client
//
// [New] takes a client of the user's, [Over] one of another library (package
// goredislock is that for go-redis); none is ever closed. Commands of ours are never
// repeated by the client, but where a server refused them and named another; do not
// set ConnLifetime, which may repeat what it cut.
//
// # Permissions
//
// The least that an ACL user needs: the keys hf:*, hfq:*, hfp:*, hfh:*, hft:* and hfx:*, the
// channels hfc:*, and the commands of docs/store-redis.md.
package redislock
