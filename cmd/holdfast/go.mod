module github.com/holdfast-go/holdfast/cmd/holdfast

go 1.26.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/redislock v0.0.0
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

// Builds the checkout it stands in; those who import this module do not see it.
replace github.com/holdfast-go/holdfast => ../..

replace github.com/holdfast-go/holdfast/redislock => ../../redislock
