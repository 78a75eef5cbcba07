// Package bootstrap contains the script that starts a workspace's agent: coder_agent.init_script. It downloads the agent's
// binary from the server and executes it. The package knows neither Terraform nor the server.
package bootstrap

import (
	_ "embed"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/releasekey"
)

//go:embed linux.sh
var linux string

// Script returns the POSIX shell script for an operating system and a processor (Go's names, and "armv7"), or "" if there is none. The
// provider must replace ${ACCESS_URL} with the server's URL, ending in a slash, and ${AUTH_TYPE}. The agent's token comes from the
// environment variable CODER_AGENT_TOKEN.
//
// If this program is built with a release's public key, the script runs an agent only if the makers of a release signed it, where the
// machine has openssl. The script names a key and not a checksum, because a machine that restarts later gets the agent of a newer server.
func Script(os, arch string) string { return script(os, arch, releasekey.PEM()) }

func script(os, arch, key string) string {
	if os != "linux" {
		return ""
	}
	switch arch {
	case "amd64", "arm64", "armv7":
		return strings.NewReplacer("@ARCH@", arch, "@KEY@", strings.TrimSpace(key)).Replace(linux)
	}
	return ""
}
