//go:build !unix

package proc

// DefaultSignals does nothing, because children do not inherit signal dispositions on this system.
func DefaultSignals() {}
