package terraform_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestIDToken: a template reads the build's ID token as a file beside it, its programs find it in their environment,
// and a file of that name in the template does not replace it. A build without a token has neither.
func TestIDToken(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	source := files(`
resource "terraform_data" "proof" {
  input = "file:${try(trimspace(file("${path.module}/.coder-id-token")), "none")}."
  provisioner "local-exec" {
    command = <<-EOT
      named=$(cat "$${CODER_ID_TOKEN_FILE:-/dev/null}")
      echo variable:$${CODER_ID_TOKEN:-none} named:$named. mode:$(stat -c %a .coder-id-token 2>/dev/null).
    EOT
  }
}
`)
	source[".coder-id-token"] = "of-the-template"
	m := metadata()
	m.IdToken = "a.token.b"
	j := newTrial(t, source)
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
	if !strings.Contains(string(state), "file:a.token.b.") {
		t.Errorf("the template cannot read the token:\n%s", state)
	}
	if log := j.sink.text(); !strings.Contains(log, "variable:a.token.b named:a.token.b. mode:600.") {
		t.Errorf("the template's programs have no token:\n%s", log)
	}
	delete(source, ".coder-id-token")
	j = newTrial(t, source)
	state = ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})).GetState()
	log := j.sink.text()
	if !strings.Contains(string(state), "file:none.") || !strings.Contains(log, "variable:none named:. mode:.") {
		t.Errorf("a build without a token has one:\n%s\n%s", state, log)
	}
}
