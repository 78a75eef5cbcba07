package connect

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// workspaceOf returns a workspace with agents.
func workspaceOf(owner, name string, agents ...string) sdk.Workspace {
	ws := sdk.Workspace{OwnerName: owner, Name: name}
	var resource sdk.WorkspaceResource
	for _, agent := range agents {
		resource.Agents = append(resource.Agents, sdk.WorkspaceAgent{Name: agent})
	}
	ws.LatestBuild.Resources = []sdk.WorkspaceResource{resource}
	return ws
}

// TestGatewayEntries checks that each agent has a complete entry, with the name that the gateway knows it by.
func TestGatewayEntries(t *testing.T) {
	t.Parallel()
	own := []sdk.Workspace{workspaceOf("ada", "dev", "main"), workspaceOf("ada", "big", "api", "web"), workspaceOf("ada", "stopped")}
	hosts, err := gatewayHosts(own, []sdk.Workspace{workspaceOf("bob", "demo", "main")}, "coder.", "coder")
	if err != nil {
		t.Fatal(err)
	}
	at, err := parseGateway("ssh.example.com:2222")
	if err != nil {
		t.Fatal(err)
	}
	options, err := sshOptionLines([]string{"StrictHostKeyChecking yes", ciphers}, map[string]string{"ServerAliveInterval": "30"}, []string{"ForwardAgent=yes", "ciphers aes128-ctr"})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i, entry := range [][2]string{
		{"coder.big.api api.big.ada.coder", "big.api"}, {"coder.big.web web.big.ada.coder", "big.web"}, {"coder.dev dev.coder", "dev"},
		{"coder.stopped stopped.coder", "stopped"}, {"coder.bob--demo demo.bob.coder", "bob/demo"},
	} {
		if i > 0 {
			want.WriteString("\n")
		}
		want.WriteString("Host " + entry[0] + "\n\tHostName ssh.example.com\n\tPort 2222\n\tUser " + entry[1] +
			"\n\tStrictHostKeyChecking yes\n\tciphers aes128-ctr\n\tServerAliveInterval 30\n\tForwardAgent yes\n")
	}
	if diff := cmp.Diff(want.String(), renderGateway(at, hosts, options)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if hosts, err = gatewayHosts([]sdk.Workspace{workspaceOf("ada", "dev", "main")}, nil, "ws-", ""); err != nil || !cmp.Equal(hosts[0].names, []string{"ws-dev"}) {
		t.Errorf("without a suffix: %v, %v", hosts, err)
	}
}

// TestHostileGateway checks that a server cannot add lines or words to OpenSSH's configuration.
func TestHostileGateway(t *testing.T) {
	t.Parallel()
	for _, ws := range []sdk.Workspace{
		workspaceOf("ada", "dev *"), workspaceOf("ada", "dev\n\tProxyCommand touch x"), workspaceOf("ada", ""), workspaceOf("a b", "dev"),
		workspaceOf("ada", "dev", "main", "b\tc"), workspaceOf("ada", "dev", "*"), workspaceOf("-oProxyCommand=x", "dev"),
	} {
		for _, lists := range [][2][]sdk.Workspace{{{ws}, nil}, {nil, {ws}}} {
			if hosts, err := gatewayHosts(lists[0], lists[1], "coder.", "coder"); fault.CodeOf(err) != fault.Invalid {
				t.Errorf("%q of %q: %v, %v", ws.Name, ws.OwnerName, hosts, err)
			}
		}
	}
	for _, address := range []string{
		"", "host", "host:0", "host:65536", ":22", "a b:22", "a\nProxyCommand x:22", "%h:22", "-oProxyCommand=x:22", "*:22", "a\t:22", "a.:22", "host:22\n", "$(x):22", "[fe80::1%a b]:22", "[fe80::1%eth0]:22",
	} {
		if at, err := parseGateway(address); err == nil {
			t.Errorf("%q: %+v", address, at)
		}
	}
	for address, known := range map[string]string{"a.example.com:22": "a.example.com", "a:2222": "[a]:2222", "[2001:db8::1]:2222": "[2001:db8::1]:2222", "192.0.2.1:22": "192.0.2.1"} {
		if at, err := parseGateway(address); err != nil || at.known != known {
			t.Errorf("%q: %+v, %v, want %s", address, at, err, known)
		}
	}
}

// TestFromHome checks that the files can be copied to another home folder.
func TestFromHome(t *testing.T) {
	t.Parallel()
	const home = "/home/ada"
	for file, want := range map[string]string{
		filepath.Join(home, ".ssh", "x"): "~/.ssh/x", home + "other/x": home + "other/x", "/etc/ssh/x": "/etc/ssh/x",
	} {
		if got := fromHome(home, file); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
