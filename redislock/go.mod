module github.com/holdfast-go/holdfast/redislock

go 1.26.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/redis/rueidis v1.0.79
)

require golang.org/x/sys v0.47.0 // indirect

// Builds the checkout it stands in; those who import this module do not see it.
replace github.com/holdfast-go/holdfast => ..
