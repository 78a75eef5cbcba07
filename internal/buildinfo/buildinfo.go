// Package buildinfo says which version of the program this is.
package buildinfo

import "runtime/debug"

// version is set by the linker: -X github.com/codermesh/codermesh/internal/buildinfo.version=v2.31.0-codermesh.1
var version = "v2.31.0-codermesh.0"

// Version is the program's semantic version. Clients in the field gate features on its major and minor numbers, which follow
// the API's; the part after the dash is our own release.
func Version() string { return version }

// Revision is the commit the program was built from, "" when unknown.
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
