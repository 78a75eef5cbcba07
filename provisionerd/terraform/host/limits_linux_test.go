package host

import (
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

func TestAtLeast(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"5.14.0": true, "5.14.0-70.el9.x86_64": true, "6.18.44-fc": true, "10.0": true,
		"5.13.19": false, "4.18.0-553.el8": false, "5.9": false, "": false, "new": false,
	} {
		if got := sandbox.AtLeast(release, 5, 14); got != want {
			t.Errorf("%q: %v, want %v", release, got, want)
		}
	}
}
