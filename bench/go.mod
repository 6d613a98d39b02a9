module github.com/holdfast-go/holdfast/bench

go 1.26.0

require (
	github.com/gofrs/flock v0.13.2
	github.com/holdfast-go/holdfast v0.0.0
)

require golang.org/x/sys v0.49.0 // indirect

// Builds the checkout it stands in; those who import this module do not see it.
replace github.com/holdfast-go/holdfast => ..
