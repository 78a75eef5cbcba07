// Package hostname has the names of workspaces as hosts: dev.coder, dev.ada.coder and main.dev.ada.coder. The gateways
// for SSH and WireGuard answer to them.
package hostname

import "strings"

// Domain is the last label of hosts that are workspaces.
const Domain = "coder"

// Parse returns [owner/]workspace[.agent] for dev.coder, dev.ada.coder or main.dev.ada.coder, with or without a dot at
// the end. ok is false for other hosts. It does not check that the labels can be names.
func Parse(host string) (name string, ok bool) {
	rest, ok := cutDomain(strings.TrimSuffix(host, "."))
	if !ok {
		return "", false
	}
	switch labels := strings.Split(rest, "."); len(labels) {
	case 1:
		name = labels[0]
	case 2:
		name = labels[1] + "/" + labels[0]
	case 3:
		name = labels[2] + "/" + labels[1] + "." + labels[0]
	default:
		return "", false
	}
	return name, true
}

// cutDomain returns a host without its domain, which may be in upper case.
func cutDomain(host string) (rest string, ok bool) {
	cut := len(host) - len(Domain) - 1
	if cut < 1 || host[cut] != '.' || !strings.EqualFold(host[cut+1:], Domain) {
		return "", false
	}
	return host[:cut], true
}

// Of returns the full name of an agent: main.dev.ada.coder.
func Of(owner, workspace, agent string) string {
	return strings.Join([]string{agent, workspace, owner, Domain}, ".")
}
