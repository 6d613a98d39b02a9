// Package etcdlock is the lock store on an etcd cluster (3.4 or later), over the
// client clientv3.
//
// # URLs
//
//	etcd://[user:password@]host[:2379][,host…]      etcds:// is the same over TLS
//
//	password-file=PATH       the password is the file's first line
//	ca-file=PATH             certificate authorities, instead of the system's
//	cert-file=, key-file=    the client's own certificate
//
// A user without a password in the URL or a file has that of
// HOLDFAST_ETCD_PASSWORD. Where one of several hosts has a port, give all theirs.
//
// # How a lock is made
//
// A hold, or a place in the queue, is a key below the name's, and the oldest
// holds: the order is that of creation, and the token the revision of it. One
// transaction takes a free name; the same one, if the name is not free, takes a
// place and tells who is before it. A release deletes the key. docs/wire.md has
// the form.
//
// A waiter watches its own key and the two before it, through one stream that
// the client keeps open. When the key before it goes, and the latest look has
// shown that it was the only one, the waiter holds the name without a further
// word; else it looks again. So a dead waiter in the middle is never taken for a
// release.
//
// Keys hang on leases, one for each TTL that a client uses; the lease of a place
// runs for one to five seconds more than the claim window. A keep-alive is trusted
// from the moment before it was sent. What is watched need not be asked about: so
// renewals and heartbeats are one keep-alive for each lease, however many are held.
//
// # Guarantees
//
// Class A: consensus. docs/store-etcd.md says what can go wrong.
//
// # The client
//
// [New] takes a client of the user's and never closes it. Wrappers of its KV,
// Lease and Watcher are not seen.
package etcdlock
