package connect

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestHostileServer: what a server says about SSH does not run programs on this machine, and does not divert connections to other hosts.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"ProxyCommand", "proxycommand", "LocalCommand", "PermitLocalCommand", "KnownHostsCommand", "Match", "Match exec", "Include", "Host", "ProxyJump", "ProxyUseFdpass",
		"PKCS11Provider", "SecurityKeyProvider", "XAuthLocation", "IdentityAgent", "IdentityFile", "CertificateFile", "SendEnv", "RemoteForward", "LocalForward", "DynamicForward",
		"ForwardAgent", "ForwardX11", "ForwardX11Trusted", "ControlMaster", "ControlPath", "UserKnownHostsFile", "GlobalKnownHostsFile", "StrictHostKeyChecking", "HostName",
		"HostKeyAlias", "Port", "User", "EnableEscapeCommandline", "RemoteCommand", "Tunnel", "CanonicalizeHostname", "RevokedHostKeys", "BindInterface", "Ciphers", "", " ",
		"ConnectTimeout 1\n\tProxyCommand", "ServerAliveInterval\tx",
	} {
		err := checkServer(sdk.SSHConfig{SSHConfigOptions: map[string]string{key: "yes"}}, &configSSHOptions{})
		if hint, ok := exit.Hint(err); err == nil || !ok || !strings.Contains(hint, "--ssh-option") {
			t.Errorf("option %q: got %v (%s), want a refusal", key, err, hint)
		}
	}
	for _, value := range []string{"", "1\n\tProxyCommand evil", "1\rProxyCommand evil", "$(evil)", "`evil`", "A=$HOME", `"`, "%h", "x\x00", "~/x", "-oProxyCommand"} {
		if err := checkServer(sdk.SSHConfig{SSHConfigOptions: map[string]string{"SetEnv": value}}, &configSSHOptions{}); err == nil {
			t.Errorf("value %q is accepted", value)
		}
	}
	for _, name := range []string{"*", "g", "github.", "coder.$(evil)", "coder. *", "coder.\nHost *", "-oProxyCommand=evil.", "coder.`x`.", "coder", "!coder."} {
		if err := checkServer(sdk.SSHConfig{HostnamePrefix: name}, &configSSHOptions{}); err == nil {
			t.Errorf("prefix %q is accepted", name)
		}
	}
	for _, name := range []string{"com", "*", "github.com", "coder.com", "coder\n\tProxyCommand evil", "coder;evil", "coder $(evil)", "coder *"} {
		if err := checkServer(sdk.SSHConfig{HostnameSuffix: name}, &configSSHOptions{}); err == nil {
			t.Errorf("suffix %q is accepted", name)
		}
	}
	for _, name := range []string{"dev *", "dev\nHost *", "*", "", "$(evil)", "-x", "dev\x1b[2J", "?ev", "!dev"} {
		if err := checkNames([]string{"dev", name}); err == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}

	honest := sdk.SSHConfig{HostnamePrefix: "coder.", HostnameSuffix: "coder", SSHConfigOptions: map[string]string{"ServerAliveInterval": "30", "SetEnv": "LANG=C.UTF-8 A=b", "loglevel": "INFO"}}
	if err := checkServer(honest, &configSSHOptions{}); err != nil {
		t.Errorf("an honest server: %v", err)
	}
	if err := checkNames([]string{"dev", "my-api", "A1_b"}); err != nil {
		t.Errorf("honest names: %v", err)
	}
	// The user's own choice replaces the server's.
	own := &configSSHOptions{options: []string{"ForwardAgent=yes", "sendenv LANG"}, prefix: "work.", suffix: "work"}
	if err := checkServer(sdk.SSHConfig{HostnamePrefix: "g", HostnameSuffix: "com", SSHConfigOptions: map[string]string{"forwardagent": "no", "SendEnv": "AWS_*"}}, own); err != nil {
		t.Errorf("the user's choice: %v", err)
	}
}
