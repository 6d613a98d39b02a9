// Package goredislock is the Redis store of package redislock for those who
// have a client of go-redis: one server, Sentinel or Cluster.
//
// What it writes and promises is the same; clients of both packages meet. It
// has no URLs: it takes the client that there is.
//
//	store, err := goredislock.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), nil)
//	locks, err := holdfast.New(store, nil)
//
// The client repeats commands by itself after errors (MaxRetries); ours are
// excepted from that, as a release whose answer was lost would be answered
// wrongly. A call takes a connection of the client's pool for its time, and
// waiting takes one more for all waits together; in a cluster, one for each of
// the buckets that are waited in.
package goredislock
