package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/inside"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func newKey(t *testing.T) (ssh.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

// serveKey starts an SSH agent that has a key, and returns its socket.
func serveKey(t *testing.T, private ed25519.PrivateKey) (socket string) {
	t.Helper()
	keyring := sshagent.NewKeyring()
	if err := keyring.Add(sshagent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = sshagent.ServeAgent(keyring, conn) }()
		}
	}()
	return l.Addr().String()
}

// command runs the command line and returns what it prints.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := root(global.New(&tty.Streams{In: strings.NewReader(""), Out: &out, Err: &out}), nil)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// verify lets ssh-keygen check the signature of the file with the text "commit".
func verify(t *testing.T, text string, by ssh.PublicKey) (out []byte, err error) {
	t.Helper()
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, append([]byte("ada "), ssh.MarshalAuthorizedKey(by)...), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ssh-keygen", "-Y", "verify", "-n", "git", "-I", "ada", "-f", signers, "-s", text+".sig")
	cmd.Stdin = strings.NewReader("commit")
	return cmd.CombinedOutput()
}

// TestGitSign: modules that fetch the owner's key and get none leave a file without a key, and the owner's key signs all the same. A key of
// the user's own is used.
func TestGitSign(t *testing.T) { // not parallel: the environment
	owner, private := newKey(t)
	dir := t.TempDir()
	t.Setenv(agent.GitAgentEnv, serveKey(t, private))
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "none"))
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")

	otherPublic, other := newKey(t)
	block, err := ssh.MarshalPrivateKey(other, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		key  string
		want ssh.PublicKey
	}{
		"what a module left":   {"null\n", owner},
		"an empty file":        {"", owner},
		"the owner's key":      {string(ssh.MarshalAuthorizedKey(owner)), owner},
		"a key of one's own":   {string(pem.EncodeToMemory(block)), otherPublic},
		"the server's refusal": {`{"message":"not found"}`, owner},
	} {
		key, text := filepath.Join(dir, "key"), filepath.Join(dir, "text")
		if err := os.WriteFile(key, []byte(tt.key), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(text, []byte("commit"), 0o600); err != nil {
			t.Fatal(err)
		}
		args, ok := inside.SignArgs([]string{"-Y", "sign", "-n", "git", "-f", key, text})
		if !ok {
			t.Fatal("git's call was not recognized")
		}
		if out, err := command(t, args...); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if out, err := verify(t, text, tt.want); err != nil {
			t.Errorf("%s: the signature is not by the key that was wanted: %v\n%s", name, err, out)
		}
		if err := os.Remove(text + ".sig"); err != nil {
			t.Fatal(err)
		}
	}

	// The user's own program wins.
	if err := os.WriteFile(filepath.Join(dir, ".gitconfig"), []byte("[gpg \"ssh\"]\n\tprogram = /bin/echo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "gitsign", "--", "-Y", "sign", "-f", "k", "text"); err != nil || out != "-Y sign -f k text\n" {
		t.Errorf("own program: %q, %v", out, err)
	}
	for _, args := range [][]string{{"-Y"}, {"ssh", "-Y", "x"}, {}} {
		if _, ok := inside.SignArgs(args); ok {
			t.Errorf("%q was taken for git's call", args)
		}
	}
	t.Setenv(agent.GitAgentEnv, "")
	if _, ok := inside.SignArgs([]string{"-Y", "sign"}); ok {
		t.Error("outside a workspace, git's call was recognized")
	}
}
