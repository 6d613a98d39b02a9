module github.com/holdfast-go/holdfast/integration

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/redislock v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
)

require github.com/redis/rueidis v1.0.79 // indirect

// Builds the checkout it stands in; those who import this module do not see it.
replace github.com/holdfast-go/holdfast => ..

replace github.com/holdfast-go/holdfast/redislock => ../redislock
