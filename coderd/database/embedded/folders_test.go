package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// TestFolderNames checks that the folder may have any name.
func TestFolderNames(t *testing.T) {
	t.Parallel()
	// One folder has all characters that URLs, shells, PostgreSQL's settings and lists of hosts treat specially.
	dir := filepath.Join(t.TempDir(), `a b+c'd"e%41f#g?h&i=j,k;l@m:n\oü字$(x)`)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	srv := start(t, embedded.Options{Dir: dir})
	if got := mustQuery(t, srv.URL(), "SELECT 'reached'"); got != "reached" {
		t.Errorf("got %q", got)
	}
	stop(t, srv)

	// Without the comma, other programs reach it by the folder's own path.
	for _, name := range []string{"a b", "a+b", "a'b", `a"b`, "a%41b", "a#b", "a?b&c=d", "aü字"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		srv := start(t, embedded.Options{Dir: dir})
		address, err := embedded.RunningURL(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := mustQuery(t, address, "SELECT 'reached'"); got != "reached" {
			t.Errorf("%s: got %q", name, got)
		}
		stop(t, srv)
	}
}
