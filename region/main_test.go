//go:build linux

package region_test

import (
	"os"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testhome"
)

// TestMain gives the shells of the tests' agents an empty home.
func TestMain(m *testing.M) { os.Exit(testhome.M{M: m}.Run()) }
