package dbtest_test

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

// asVictim makes TestVictim run until it is killed.
const asVictim = "DBTEST_VICTIM"

func TestVictim(t *testing.T) {
	if os.Getenv(asVictim) == "" {
		t.Skip("only as the child of TestKilled")
	}
	fmt.Println(dbtest.URL(t))
	select {}
}

// TestKilled checks that a test process that is killed leaves behind neither a server nor files.
func TestKilled(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	cmd.Env = append(os.Environ(), asVictim+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil || address.Query().Get("host") == "" {
		t.Fatalf("the victim says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the victim ended well")
	}
	// The folder is removed after the server ends.
	testwait.Until(t, "the folder is gone", func() error {
		if _, err := os.Stat(address.Query().Get("host")); !os.IsNotExist(err) {
			return fmt.Errorf("%s: %w", address.Query().Get("host"), err)
		}
		return nil
	})
}
