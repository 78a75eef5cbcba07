package host

import (
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestOwnerNameFallsBack: an owner without a full name gets the user name instead, because templates sign commits with it.
func TestOwnerNameFallsBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ full, want string }{{"", "ada"}, {"Ada Lovelace", "Ada Lovelace"}} {
		f := Facts{Metadata: &provisionerpb.Metadata{OwnerName: "ada", OwnerFullName: tt.full}}
		if got := f.public()["CODER_WORKSPACE_OWNER_NAME"]; got != tt.want {
			t.Errorf("full name %q: the template sees %q, want %q", tt.full, got, tt.want)
		}
	}
}
