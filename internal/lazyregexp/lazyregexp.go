// Package lazyregexp compiles regular expressions when they are first used.
//
// Every command, and each process that confines a step of a build, would otherwise compile the patterns of the whole
// program before its first line runs: 5 of 30 ms on the machine that this was measured on. Package-level patterns of
// the programs use it; a test in internal/layout says so.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles a pattern, as regexp.MustCompile does, at its first call. Several goroutines may
// call it.
func New(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
