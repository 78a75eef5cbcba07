package agent_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// newKeyPair returns a private key in OpenSSH's PEM form, and its public key in the form of authorized_keys.
func newKeyPair(t testing.TB) (private, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	sshPub, err := gossh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(gossh.MarshalAuthorizedKey(sshPub)))
}

func (w *world) output(t testing.TB, command string) string {
	t.Helper()
	session, err := w.dial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.CombinedOutput(command)
	if _, ok := errors.AsType[*gossh.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return string(out)
}

// TestGitKey: programs of the workspace sign with the owner's key over a socket of their account. A replaced key takes effect at once,
// and a server without a key causes an error, not a hang.
func TestGitKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.run(t)
	list := `SSH_AUTH_SOCK=$CODER_GIT_SSH_AGENT ssh-add -L`
	if out := w.output(t, list); strings.Contains(out, "ssh-ed25519") {
		t.Errorf("without a key: got %q", out)
	}
	for range 2 {
		private, public := newKeyPair(t)
		w.update(func() { w.gitKey = &agentpb.GitSSHKeyResponse{PublicKey: public, PrivateKey: private} })
		if out := w.output(t, list); !strings.HasPrefix(out, public) {
			t.Errorf("got %q, want %q", out, public)
		}
		signed := w.output(t, `cd $(mktemp -d) && SSH_AUTH_SOCK=$CODER_GIT_SSH_AGENT ssh-add -L >key.pub && echo text >text &&
			SSH_AUTH_SOCK=$CODER_GIT_SSH_AGENT ssh-keygen -q -Y sign -n test -f key.pub text && ssh-keygen -Y check-novalidate -n test -s text.sig <text; rm -r "$PWD"`)
		if !strings.Contains(signed, `Good "test" signature`) {
			t.Errorf("sign: got %q", signed)
		}
	}
	if out := w.output(t, `SSH_AUTH_SOCK=$CODER_GIT_SSH_AGENT ssh-add -D`); !strings.Contains(out, "agent refused") && !strings.Contains(out, "Failed") {
		t.Errorf("remove the key: got %q, want a refusal", out)
	}
	out := w.output(t, `stat -c %a "${CODER_GIT_SSH_AGENT%/*}"; echo "$GIT_SSH_COMMAND; $GIT_SSH_VARIANT"; echo $CODER_GIT_SSH_AGENT`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || lines[0] != "700" || !strings.HasSuffix(lines[1], `" gitssh; ssh`) {
		t.Fatalf("got %q, want mode 700 and git's variables", lines)
	}
	stop()
	if _, err := os.Stat(filepath.Dir(lines[2])); !os.IsNotExist(err) {
		t.Errorf("the socket's folder after the end: %v, want it gone", err)
	}
}
