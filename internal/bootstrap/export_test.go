package bootstrap

// WithKey is Script with another release's key.
var WithKey = script
