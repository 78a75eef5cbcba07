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

	"github.com/codermesh/codermesh/agent"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/inside"
	"github.com/codermesh/codermesh/internal/tty"
)

// TestGitSign: modules that fetch the owner's key and get none leave a file without a key, and the owner's key signs all the same. A key of
// the user's own is used.
func TestGitSign(t *testing.T) { // not parallel: the environment
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	keyring := sshagent.NewKeyring()
	if err := keyring.Add(sshagent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = sshagent.ServeAgent(keyring, conn) }()
		}
	}()
	t.Setenv(agent.GitAgentEnv, l.Addr().String())
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "none"))
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")

	sign := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := root(global.New(&tty.Streams{In: strings.NewReader(""), Out: &out, Err: &out}), nil)
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(other, "")
	if err != nil {
		t.Fatal(err)
	}
	otherPublic, err := ssh.NewPublicKey(other.Public())
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
		if out, err := sign(args...); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		signers := filepath.Join(dir, "signers")
		if err := os.WriteFile(signers, append([]byte("ada "), ssh.MarshalAuthorizedKey(tt.want)...), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("ssh-keygen", "-Y", "verify", "-n", "git", "-I", "ada", "-f", signers, "-s", text+".sig")
		cmd.Stdin = strings.NewReader("commit")
		if out, err := cmd.CombinedOutput(); err != nil {
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
	if out, err := sign("gitsign", "--", "-Y", "sign", "-f", "k", "text"); err != nil || out != "-Y sign -f k text\n" {
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
