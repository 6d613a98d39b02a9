// Package guard runs a command so that it cannot outlive the lock it runs
// under.
//
// The guard is a small process between the wrapper, which holds the lock, and
// the command. It is the command's parent and the subreaper of everything the
// command starts, so that nothing can leave its tree, and it talks to the
// wrapper over a socket:
//
//   - when the command ends, it ends what the command left behind, reaps it,
//     and only then says that all are gone;
//   - when the socket ends, the wrapper died: it kills the tree at once, and
//     holds the wrapper's lock descriptors open until the tree is gone;
//   - it knows the instant by which the tree must be dead, and keeps it on its
//     own, also while the wrapper is stopped;
//   - what it may not kill it names, and waits for.
//
// If the guard itself is killed, its tree falls to the wrapper, which is a
// subreaper as well: see [Conn.TakeOver]. If both are killed, the kernel still
// kills the command itself (PR_SET_PDEATHSIG; it forgets that when the command
// executes a set-user-ID program), but not what the command has started.
//
// The process is the wrapper's own binary, started anew from /proc/self/exe
// and recognised in this package's init, which never returns there. So the
// package must not import more than it does: Go initialises packages as soon
// as their imports are, in the order of their paths, and the guard has to be
// up before the clients of the stores cost their time and memory.
//
// # Limits
//
// A process is in the tree as long as its parents are. What another program
// starts on the command's behalf (systemd-run, a container engine, at, a
// remote shell) is not.
package guard
