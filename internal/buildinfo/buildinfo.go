// Package buildinfo holds the program's version.
package buildinfo

import "runtime/debug"

// version is set by the linker: -X github.com/codermesh/codermesh/internal/buildinfo.version=v2.31.10001+codermesh
var version = "v2.31.10000+codermesh"

// Version returns the program's semantic version. Clients in the field gate features on its major and minor numbers, which follow the
// API's. The patch number is 10000 plus the number of our release, so that it belongs to no other program, grows with each release, and
// needs no suffix that would rank it below its base. A build without a release is number 0.
func Version() string { return version }

// Revision returns the commit from which the program was built, or "".
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
