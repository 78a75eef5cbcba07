//go:build !linux

package main

// keepCapabilities does nothing: only Linux has capabilities.
func keepCapabilities() error { return nil }
