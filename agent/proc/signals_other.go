//go:build !unix

package proc

// DefaultSignals does nothing: children inherit no dispositions of signals here.
func DefaultSignals() {}
