module github.com/holdfast-go/holdfast/zklock

go 1.26.0

require github.com/holdfast-go/holdfast v0.0.0

// Builds the checkout it stands in; those who import this module do not see it.
replace github.com/holdfast-go/holdfast => ..
