// Package sshoffer says what a server may put into the OpenSSH configuration of its users' machines.
//
// A server may be hostile, or be taken over, and OpenSSH obeys its configuration. So a client takes only what is listed
// here: nothing that runs a program, reads or writes a file, passes on keys, forwards ports or displays, sends the
// machine's environment, or weakens what proves the other end. A server refuses settings that its clients would refuse.
package sshoffer

import (
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// options are the options of OpenSSH that a server may set, in lower case.
var options = []string{
	"addressfamily", "compression", "connectionattempts", "connecttimeout", "ipqos", "loglevel", "rekeylimit",
	"requesttty", "serveralivecountmax", "serveraliveinterval",
	"setenv", "tcpkeepalive",
}

var (
	value  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9 ._:,=/@+-]*$`)
	prefix = lazyregexp.New(`^coder([.-]|[a-z0-9.-]*[.-])$`)
	suffix = lazyregexp.New(`^\.?coder[a-z0-9-]*$`)
)

// Options returns the names of the options that a server may set, in lower case.
func Options() []string { return slices.Clone(options) }

// Option reports whether a server may set the option to text.
func Option(name, text string) bool {
	return slices.Contains(options, strings.ToLower(name)) && value().MatchString(text)
}

// Prefix reports whether a server may take all hosts that begin with text. Others could be hosts of other servers.
func Prefix(text string) bool { return prefix().MatchString(text) }

// Suffix reports whether a server may take all hosts that end with text.
func Suffix(text string) bool { return suffix().MatchString(text) }
