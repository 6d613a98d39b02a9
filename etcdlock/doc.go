// Package etcdlock is the lock store on an etcd cluster (3.4 or later).
package etcdlock
