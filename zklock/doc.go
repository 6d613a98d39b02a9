// Package zklock is the lock store on a ZooKeeper ensemble (3.5 or later).
//
// # URLs
//
//	zookeeper://[user:password@]host[:2181],host…[/root]     zookeepers:// is the same over TLS
//
//	password-file=PATH   the password is the file's first line
//	open=true            see Options.Open
//	ca, cert, key=PATH   for zookeepers://: whom to trust, and who we are (PEM)
//	server-name=NAME     for zookeepers://: whose certificate to expect, if not the host's
//
// Without a root, /holdfast. With a user and without a password in the URL or a
// file, HOLDFAST_ZOOKEEPER_PASSWORD is used if it is set. If any host has a port,
// the last one must have one.
//
// # How a lock is made
//
// A name is a container node, which the server deletes some time after it was
// left. A hold or place is an ephemeral sequential child of it, with owner and
// mode in its name: the oldest holds, or as many of them as may hold together. Its
// token is the transaction that made it. A place watches the two before it. One
// exchange makes the node and lists its siblings; one deletes it.
// docs/wire.md has the format.
//
// # The session
//
// The store has one session. All leases live by it, and are trusted for no longer
// than TTL after it was last proven, on our own clock; the servers keep it a third
// longer. So a connection that breaks loses nothing, as long as another is made in
// time. A session that has ended is lost with all that was in it, and the next
// acquire makes a new one.
//
// # Guarantees
//
// Class A: exclusion holds while a majority of the servers lives, whatever fails.
// Fair queue, shared holds, permits, fencing tokens, break, list and inspect; no
// handles, as a hold cannot leave its session. Attempts without a place hold only
// if they are the oldest, and withdraw at once otherwise.
package zklock
