package terraform_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestExternalAuth: a template reads the login that it names, and no log shows it. Other programs of the template do not see it unless the
// template passes it on.
func TestExternalAuth(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	m := metadata()
	m.ExternalAuthTokens = map[string]string{"git-1": "LOGIN-ONE-SECRET", "other": "LOGIN-TWO-SECRET"}
	j := newTrial(t, files(`
data "coder_external_auth" "git" {
  id = "git-1"
}
data "coder_external_auth" "none" {
  id       = "nobody"
  optional = true
}
resource "terraform_data" "sum" {
  input = "${sha256(nonsensitive(data.coder_external_auth.git.access_token))} none:${nonsensitive(data.coder_external_auth.none.access_token)}."
  provisioner "local-exec" {
    command = "env; for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; done; cat /proc/*/cmdline | tr '\\0' ' '; echo end-of-spying"
  }
}
`))
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
	if !bytes.Contains(state, []byte("LOGIN-ONE-SECRET")) || !bytes.Contains(state, []byte(" none:.")) {
		t.Errorf("the template has not got its login:\n%s", state)
	}
	if bytes.Contains(state, []byte("LOGIN-TWO-SECRET")) {
		t.Error("the state holds a login that the template does not name")
	}
	log := j.sink.text()
	if !strings.Contains(log, "end-of-spying") {
		t.Fatalf("the spy did not work:\n%s", log)
	}
	if strings.Contains(log, "SECRET") {
		t.Errorf("a login is in the log, or another program has seen it:\n%s", log)
	}
}
