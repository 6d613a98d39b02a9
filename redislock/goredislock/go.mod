module github.com/holdfast-go/holdfast/redislock/goredislock

go 1.26.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/redislock v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

// Builds the checkout it stands in; those who import this module do not see it.
replace github.com/holdfast-go/holdfast => ../..

replace github.com/holdfast-go/holdfast/redislock => ..
