// Package bootstrap contains the script that starts a workspace's agent: coder_agent.init_script. It downloads the
// agent's binary from the server and executes it. The package knows neither Terraform nor the server.
package bootstrap

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/releasekey"
)

var (
	//go:embed unix.sh
	unix string
	//go:embed windows.ps1
	windows string
)

// Platforms are the operating systems and processors that Script knows, as in linux/amd64.
var Platforms = []string{"linux/amd64", "linux/arm64", "linux/armv7", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// Script returns the script for an operating system and a processor (Go's names, and "armv7"), or "" if there is none:
// a POSIX shell script, or for Windows one for PowerShell. The provider must replace ${ACCESS_URL} with the server's
// URL, ending in a slash, and ${AUTH_TYPE}. The agent's token comes from the environment variable CODER_AGENT_TOKEN.
//
// If this program is built with a release's public key, the shell script runs an agent only if the makers of a release
// signed it, where the machine has openssl. The script names a key and not a checksum, because a machine that restarts
// later gets the agent of a newer server. The script for Windows compares checksums only: PowerShell 5.1 cannot read
// such a key.
func Script(os, arch string) string { return script(os, arch, releasekey.PEM()) }

func script(os, arch, key string) string {
	if !slices.Contains(Platforms, os+"/"+arch) {
		return ""
	}
	text := unix
	if os == "windows" {
		text = windows
	}
	return strings.NewReplacer("@OS@", os, "@ARCH@", arch, "@KEY@", strings.TrimSpace(key)).Replace(text)
}
