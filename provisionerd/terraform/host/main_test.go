package host

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// TestMain makes the test binary act as the program that starts a sandbox.
func TestMain(m *testing.M) {
	if policy, ok := sandbox.CommandFile(os.Args); ok {
		if err := sandbox.Exec(policy, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
