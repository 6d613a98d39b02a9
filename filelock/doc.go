// Package filelock keeps locks in a directory: for the processes of one
// machine, without a server. It is Holdfast's default store.
//
//	locks, err := holdfast.Open(ctx, "file:///run/lock/orders", nil)
//
// Do not use it across machines: a network file system may keep locks to each
// client, or drop them. Nor across containers that share no directory.
//
// # URLs
//
//	file:///dir                 made, mode 0700, if its parent exists
//	file:///dir?shared=true     for several users: files 0666, a new directory 1777
//	file:///dir?network=allow   accept a network file system, as class D
//
// [New] is the same for programs that have no URL, and [DefaultDir] the
// directory of the command's default store.
//
// # How it works
//
// Each name has one file, KEY.lock, in which bytes are locked (fcntl(2), locks
// of open file descriptions, which like those of flock(2) belong to the
// descriptor and not to the process, and end when the last duplicate is closed):
//
//	byte 0    mark: who has the gate waits
//	byte 1    gate
//	byte 2    lock: write-locked by an exclusive holder, read-locked by others
//	byte 2+i  slot i: the holder written there lives
//
// Whoever wants the name takes the gate, keeps it while he waits for the lock,
// mints the token, writes his record, and then frees the gate, unless he holds
// exclusive, when gate and lock are one range and taken in one call. So tokens
// are minted one by one, a waiting writer stops new readers, and requests for
// several permits are served in order. Why not flock(2) itself, on a file for
// each of these: byte locks can be asked about without being taken, also from
// another PID namespace, so that looking disturbs nobody; they say of each
// holder whether he lives; one descriptor does for a name; and an exclusive
// pair takes two calls of the kernel less.
//
// The file is text, at fixed offsets, with checksums: the kind of the name, its
// last token, who was granted it. That somebody holds it, only the locks say:
// nothing needs to be cleaned up after kill -9. Nothing is synced to disk: the
// locks end with the machine, and tokens rest on the clock then.
//
// Waiters for an exclusive hold's end are parked in the kernel at the gate, a
// thread for each name, at most 256 in a store (then driver.ErrNoRoom); the
// kernel keeps them in order and wakes one. The one who has the gate is woken by inotify(7), as there is
// no lock to block on for "some permit is free". A cancelled wait returns at
// once; what was parked may stay in the kernel until the gate is next freed,
// also after Close, and takes nothing then. A process that is stopped
// (SIGSTOP) while it waits keeps its place, and those behind it wait.
//
// holdfast.floor is one small file for the directory. It has the largest token
// of the files that were removed, so that tokens grow over that too, whatever
// the clock does; a damaged one is written anew, from the clock. Files that were
// not granted for ten minutes are removed, by
// whichever process comes by.
//
// # Guarantees
//
// Class B: exclusion and tokens hold while the machine runs and nobody touches
// the files. A hold has no end of its own; it ends with Release, with the
// process, or with Close, unless its descriptors were inherited (Inherit). A
// file that is removed or replaced by a person ends its holds: the holder
// learns it at the next renewal, and until then two may run. So does a forced
// break, and whoever removes or moves the directory, or mounts over it: newcomers
// lock where the path leads, which is made absolute once, by New. On a file system in memory tokens do not survive a reboot: a clock
// that was set back meanwhile can lower them.
//
// A try answers Held while somebody waits. It never blocks on a lock; it looks
// again, for 0.2 s at most, where the gate is busy for no reason that lasts.
// The order of waiters is the kernel's and not promised; a store that takes a
// name again and again lets parked waiters come first every 10 ms.
//
// # Errors
//
// All are [driver.Failure]s and name the file. Denied: permissions, a read-only
// file system, a symbolic link for the directory. Conflict: the name is held as another kind, or what is there is
// no lock file of ours (a link, a pipe, foreign text): it is never touched.
// Unavailable: no room (idle files are removed first), no descriptors, no
// directory.
// Unsupported: a network file system, or one without such locks.
//
// # Limits
//
// Keys have at most 200 bytes. A name has at most 65,536 shared holders or
// holders of permits. A held name costs a descriptor, and up to
// Options.IdleDescriptors more are kept. Labels and reasons that do not fit
// their block (344 and 926 bytes, quoted) are cut. Linux is the
// platform; the package is built for macOS without a promise.
package filelock
