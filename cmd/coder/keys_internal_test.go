package main

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/keyring"
)

// TestLossOfHostKeys checks that operators read before they confirm that SSH clients will warn, and only if they will.
func TestLossOfHostKeys(t *testing.T) {
	t.Parallel()
	for kind, want := range map[keyring.Kind]bool{keyring.SSHHostKeys: true, keyring.SSHKeys: false} {
		var out strings.Builder
		describeLoss(&out, keyring.Loss{Values: map[keyring.Kind]int64{kind: 1}}, []string{"9233370348df862e"})
		if !strings.HasPrefix(out.String(), "Lost with 9233370348df862e: "+string(kind)+": 1.\n") || strings.Contains(out.String(), "clients that know them warn") != want {
			t.Errorf("%s: got %q, want the warning: %t", kind, out.String(), want)
		}
	}
}

// TestLossOfIdentityKeys checks that operators read that ID tokens end, and only if they do.
func TestLossOfIdentityKeys(t *testing.T) {
	t.Parallel()
	for kind, want := range map[keyring.Kind]bool{keyring.IdentityKeys: true, keyring.SSHHostKeys: false} {
		var out strings.Builder
		describeLoss(&out, keyring.Loss{Values: map[keyring.Kind]int64{kind: 1}}, []string{"9233370348df862e"})
		if strings.Contains(out.String(), "ID tokens of workspaces and builds that were issued before no longer count") != want {
			t.Errorf("%s: got %q, want ID tokens: %t", kind, out.String(), want)
		}
	}
}
