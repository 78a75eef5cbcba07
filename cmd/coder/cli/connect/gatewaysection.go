package connect

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// fileGatewayHosts is the known_hosts file by which OpenSSH knows the SSH gateway. It is beside OpenSSH's
// configuration, so that both can be copied to a machine without this program.
const fileGatewayHosts = "coder_gateway_hosts"

// ofProgram are the flags that say how OpenSSH runs this program, which --gateway does not need.
var ofProgram = []string{"coder-binary-path", "wait", "no-wildcard", "disable-autostart", "skip-proxy-command", "force-unix-filepaths"}

// checkGateway refuses flags that have no effect with --gateway.
func (opts *configSSHOptions) checkGateway(f *pflag.FlagSet) error {
	for _, name := range ofProgram {
		if opts.gateway && f.Changed(name) {
			return exit.Try(fault.New(fault.Invalid,
				"--gateway cannot be combined with --%s, which is about this program", name), "Leave one of them out.")
		}
	}
	return nil
}

// gatewaySection returns the lines of the section with --gateway: an entry for each agent that the user may connect to,
// with everything that OpenSSH must know. Patterns would not do, because the name of the workspace is the user name.
func gatewaySection(
	ctx context.Context, client *sdk.Client, opts *configSSHOptions, file string, server map[string]string,
) (string, error) {
	gateway, err := client.SSHGateway(ctx)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return "", err
	}
	if !gateway.Enabled {
		return "", exit.Try(fault.New(fault.Unavailable, "this deployment has no SSH gateway"), "coder config-ssh")
	}
	at, err := parseGateway(gateway.Address)
	if err != nil {
		return "", err
	}
	var lists [2][]sdk.Workspace
	for i, q := range []string{"owner:me", "shared_with_user:me"} {
		if lists[i], err = client.AllWorkspaces(ctx, q, ""); err != nil {
			return "", err
		}
	}
	hosts, err := gatewayHosts(lists[0], lists[1], opts.prefix, opts.suffix)
	if err != nil {
		return "", err
	}
	if len(hosts) > 0 {
		opts.first = hosts[0].names[0]
	}
	text, err := hostAuthority(ctx, client, at.known)
	if err != nil {
		return "", err
	}
	if text == "" {
		return "", fault.New(fault.Unavailable,
			"the server has no SSH host CA, by which OpenSSH would know the gateway")
	}
	opts.authority = authority{filepath.Join(filepath.Dir(file), fileGatewayHosts), text}
	home, err := realPath("~")
	if err != nil {
		return "", err
	}
	known := "UserKnownHostsFile " + quoteConfig(fromHome(home, opts.authority.path))
	options, err := sshOptionLines([]string{"StrictHostKeyChecking yes", known, "LogLevel ERROR", ciphers}, server,
		opts.options)
	if err != nil {
		return "", err
	}
	return renderGateway(at, hosts, options), nil
}

// gatewayAddress is where the gateway is, and what known_hosts calls it.
type gatewayAddress struct {
	host  string
	port  uint16
	known string
}

// gatewayName matches what can be the host of a gateway, besides an address: a server must not add words to OpenSSH's
// configuration.
var gatewayName = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

func parseGateway(address string) (at gatewayAddress, err error) {
	host, text, err := net.SplitHostPort(address)
	port, parse := strconv.ParseUint(text, 10, 16)
	ip, _ := netip.ParseAddr(host)
	if err != nil || parse != nil || port == 0 || !gatewayName().MatchString(host) &&
		(!ip.IsValid() || ip.Zone() != "") {
		return at, fault.New(fault.Invalid, "the server says that its SSH gateway is at %q, which is no address",
			address)
	}
	at = gatewayAddress{host, uint16(port), host}
	if port != 22 {
		at.known = fmt.Sprintf("[%s]:%d", host, port)
	}
	return at, nil
}

// gatewayHost is one entry: names of OpenSSH's for a workspace or one of its agents, and the gateway's for it.
type gatewayHost struct {
	names []string
	user  string
}

// gatewayHosts returns the entries for a user's own workspaces, and for those that are shared with them. Workspaces
// with several agents have one for each.
func gatewayHosts(own, shared []sdk.Workspace, prefix, suffix string) ([]gatewayHost, error) {
	var hosts []gatewayHost
	for i, list := range [][]sdk.Workspace{own, shared} {
		slices.SortFunc(list, func(a, b sdk.Workspace) int { return strings.Compare(a.FullName(), b.FullName()) })
		for _, ws := range list {
			var agents []string
			for _, a := range ws.LatestBuild.Agents() {
				agents = append(agents, a.Name)
			}
			if err := checkNames(append([]string{ws.OwnerName, ws.Name}, agents...)); err != nil {
				return nil, err
			}
			user, labels := ws.Name, ws.Name
			if i > 0 {
				user, labels = ws.FullName(), ws.Name+"."+ws.OwnerName
			}
			add := func(user, labels string) {
				names := []string{prefix + strings.Replace(user, "/", "--", 1)}
				if suffix != "" {
					names = append(names, labels+"."+suffix)
				}
				hosts = append(hosts, gatewayHost{names, user})
			}
			if len(agents) < 2 {
				add(user, labels)
				continue
			}
			for _, agent := range agents {
				add(user+"."+agent, strings.Join([]string{agent, ws.Name, ws.OwnerName}, "."))
			}
		}
	}
	return hosts, nil
}

// renderGateway returns the entries, each complete: editors read them, and not all know how OpenSSH combines several.
func renderGateway(at gatewayAddress, hosts []gatewayHost, options []string) string {
	var b strings.Builder
	for i, h := range hosts {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Host %s\n\tHostName %s\n\tPort %d\n\tUser %s\n", strings.Join(h.names, " "), at.host, at.port,
			h.user)
		for _, line := range options {
			b.WriteString("\t" + line + "\n")
		}
	}
	return b.String()
}

// fromHome writes a path in the user's home folder as one in any home folder, so that it also is right where the files
// are copied to.
func fromHome(home, file string) string {
	rel, err := filepath.Rel(home, file)
	if err != nil || !filepath.IsLocal(rel) {
		return file
	}
	return path.Join("~", filepath.ToSlash(rel))
}
