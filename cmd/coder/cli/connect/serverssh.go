package connect

import (
	"maps"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/sshoffer"
)

var hostName = lazyregexp.New(`^[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*$`)

// checkServer refuses what a server must not decide, as sshoffer says, except what the user's own flags replace:
// options, a prefix or a suffix, which would lead connections to other hosts through this server.
func checkServer(server sdk.SSHConfig, opts *configSSHOptions) error {
	var own []string
	for _, pair := range opts.options {
		if i := strings.IndexAny(pair, "= "); i > 0 {
			own = append(own, strings.ToLower(strings.TrimSpace(pair[:i])))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(server.SSHConfigOptions)) {
		value := server.SSHConfigOptions[key]
		if slices.Contains(own, strings.ToLower(key)) {
			continue
		}
		if !sshoffer.Option(key, value) {
			return exit.Try(fault.New(fault.Forbidden,
				"the server sets the SSH option %q to %q, which could do harm on this machine", key, value),
				"If you want the option, set it yourself: --ssh-option KEY=VALUE")
		}
	}
	if opts.prefix == "" && server.HostnamePrefix != "" && !sshoffer.Prefix(server.HostnamePrefix) {
		return exit.Try(fault.New(fault.Forbidden,
			"the server wants all hosts that begin with %q, which may be others' hosts", server.HostnamePrefix),
			"Choose a prefix yourself: --ssh-host-prefix PREFIX")
	}
	if opts.suffix == "" && server.HostnameSuffix != "" && !sshoffer.Suffix(server.HostnameSuffix) {
		return exit.Try(fault.New(fault.Forbidden,
			"the server wants all hosts that end with %q, which may be others' hosts", server.HostnameSuffix),
			"Choose a suffix yourself: --hostname-suffix SUFFIX")
	}
	return nil
}

// checkNames refuses names of workspaces that would be more than a host in the configuration.
func checkNames(names []string) error {
	for _, name := range names {
		if !hostName().MatchString(name) {
			return fault.New(fault.Invalid, "the server has a workspace %q, which is not a name", name)
		}
	}
	return nil
}
