//go:build unix

package embedded

// FetchPinned is Fetch for a package with this checksum, which Pins has for the real ones by platform.
var (
	FetchPinned = fetch
	Pins        = pins
	Platform    = platformOf
)
