package main

import (
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestProvisionerNamesItsOrganization: --org reaches the server with every credential; without it the header is absent, so that the key or
// the server decides.
func TestProvisionerNamesItsOrganization(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]provisionerOptions{
		"key":     {key: "k"},
		"psk":     {psk: "p"},
		"session": {},
	} {
		for _, org := range []string{"", "east"} {
			opts.name, opts.org = "rack", org
			header, err := opts.header(cli.Server{Token: "abcdefghij-0123456789012345678901"}, "instance")
			if err != nil {
				t.Fatal(err)
			}
			if got, sent := header[sdk.ProvisionerOrganizationHeader]; sent != (org != "") || sent && got[0] != org {
				t.Errorf("%s, --org %q: got %q", name, org, got)
			}
		}
	}
}
