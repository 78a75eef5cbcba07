package coderd_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// TestExternalAgentCredentials: the answer is a command that its reader runs in a shell, so nothing that an agent reports about itself may get
// into it.
func TestExternalAgentCredentials(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	token := uuid.NewString()
	s.Exec(`UPDATE workspace_agents SET external = true, token_hash = $2, operating_system = 'linux', architecture = 'amd64' WHERE id = $1`, known["agent"], secret.Token(token).Hash())
	state := func(token string) string {
		text := fmt.Sprintf(`{"version":4,"serial":9,"lineage":"l","resources":[{"mode":"managed","type":"coder_agent","name":"main","instances":[{"attributes":{"id":%q,"token":%q}}]}]}`, known["agent"], token)
		return fmt.Sprintf(`{"state":%q}`, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	put := func(token string) step {
		return step{method: "PUT", path: "workspacebuilds/{build}/state", body: state(token), status: 204}
	}
	const path = "workspaces/{ws}/external-agent/main/credentials"
	command := func(arch string) string {
		return fmt.Sprintf(`{"agent_token":%q,"command":"curl -fsSL {url}/api/v2/init-script/linux/%s | CODER_AGENT_TOKEN=%s sh"}`, token, arch, token)
	}
	reports := func(system, arch string) {
		s.Exec(`UPDATE workspace_agents SET operating_system = $2, architecture = $3 WHERE id = $1`, known["agent"], system, arch)
	}

	replay(t, s, known, []step{
		{as: "ann", method: "GET", path: path, status: 409, text: "no longer valid"}, // the state has no such agent
		put(token),
		{as: "ann", method: "GET", path: path, status: 200, want: command("amd64")},
		{as: "ann", method: "GET", path: "workspaces/{ws}/external-agent/{agent}/credentials", status: 200, want: command("amd64")},
		{as: "ann", method: "GET", path: "workspaces/{ws}/external-agent/none/credentials", status: 404, text: "has no agent"},
		{as: "bob", method: "GET", path: path, status: 404},
		{as: "olga", method: "GET", path: path, status: 403},
		{as: "nobody", method: "GET", path: path, status: 401},
	})
	reports("linux", "arm")
	replay(t, s, known, []step{{as: "ann", method: "GET", path: path, status: 200, want: command("armv7")}})
	reports("windows", "amd64")
	onWindows := fmt.Sprintf(`{"agent_token":%q,"command":"$env:CODER_AGENT_TOKEN = '%s'; irm '{url}/api/v2/init-script/windows/amd64' | iex"}`, token, token)
	replay(t, s, known, []step{{as: "ann", method: "GET", path: path, status: 200, want: onWindows}})
	for _, bad := range [][2]string{{`linux/amd64"; reboot; "`, "amd64"}, {"linux", "amd64$(reboot)"}, {"..", "amd64"}, {"", ""}} {
		reports(bad[0], bad[1])
		replay(t, s, known, []step{{as: "ann", method: "GET", path: path, status: 409, text: "do not run on"}})
	}
	reports("linux", "amd64")
	evil := token + `"; reboot; "`
	s.Exec(`UPDATE workspace_agents SET token_hash = $2 WHERE id = $1`, known["agent"], secret.Token(evil).Hash())
	replay(t, s, known, []step{put(evil), {as: "ann", method: "GET", path: path, status: 409, text: "no longer valid"}})
	s.Exec(`UPDATE workspace_agents SET external = false WHERE id = $1`, known["agent"])
	replay(t, s, known, []step{{as: "ann", method: "GET", path: path, status: 409, text: "not an external agent"}})
}
