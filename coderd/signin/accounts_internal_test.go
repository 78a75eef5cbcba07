package signin

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestLookAlikeAddresses: a database whose locale folds the letters of all alphabets finds kim's account for the address of another person.
func TestLookAlikeAddresses(t *testing.T) {
	t.Parallel()
	kim := dbsqlc.User{Email: "Kim@corp.example", LoginType: string(sdk.LoginOIDC)}
	for _, address := range []string{"\u212aim@corp.example", "k\u0131m@corp.example", "kim@corp.e\u017fample", "\uff4bim@corp.example"} {
		err := new(Service).mayAdopt(t.Context(), nil, kim, identity{Email: address, LoginType: sdk.LoginOIDC, Verified: verifiedEmail})
		if fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "looks like that of another account") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"kim@corp.example", "KIM@CORP.EXAMPLE"} {
		if !sameAddress(kim.Email, address) {
			t.Errorf("%q is another address", address)
		}
	}
}
