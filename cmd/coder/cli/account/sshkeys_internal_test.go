package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const goodKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJBp39MQBSTFVv4tQ2rSlbPFzJz3mG6hPDlQGbWtmFSo ann@laptop"

// TestCheckedKey checks that what is sent is a public key, and that other files lead to a hint.
func TestCheckedKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file+".pub", []byte(goodKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := checkedKey("-", goodKey+"\n", "coder ssh-key add"); err != nil || got != goodKey {
		t.Errorf("got %q, %v", got, err)
	}
	private := "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n"
	for from, want := range map[string]string{file: "coder ssh-key add " + file + ".pub", "-": "Keep it secret", file + "x": "Keep it secret"} {
		got, err := checkedKey(from, private, "coder ssh-key add")
		hint, _ := exit.Hint(err)
		if got != "" || err == nil || !strings.HasPrefix(hint, want) || strings.Contains(err.Error()+hint, "c2VjcmV0") {
			t.Errorf("a private key from %s: got %q, %v, hint %q", from, got, err, hint)
		}
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	past, future := time.Now().Add(-time.Hour), time.Date(2126, 5, 4, 3, 2, 1, 0, time.Local)
	for want, at := range map[string]*time.Time{"never": nil, "expired": &past, "2126-05-04 03:02": &future} {
		if got := expiry(sdk.UserSSHKey{ExpiresAt: at}); got != want {
			t.Errorf("%v: got %q, want %q", at, got, want)
		}
	}
}

// TestUnreadableKeyFile checks that a key that is given in place of a file is not repeated.
func TestUnreadableKeyFile(t *testing.T) {
	t.Parallel()
	_, _, err := readPublicKey(nil, []string{"-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"})
	if err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("got %v", err)
	}
}
