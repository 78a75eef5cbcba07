package main

import (
	"net"
	"net/url"
	"strconv"

	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// sshAccess returns the host and port at which users reach the SSH gateway, "" without one.
func (opts *serverOptions) sshAccess(l *listeners, accessURL *url.URL) (string, error) {
	if opts.sshAddress == "" {
		if opts.sshAccessAddress != "" {
			return "", fault.New(fault.Invalid, "--ssh-access-address needs --ssh-address").
				WithDetail("Set --ssh-address to the address to serve SSH on, such as 0.0.0.0:2222.")
		}
		return "", nil
	}
	if opts.sshAccessAddress == "" {
		if l == nil { // another error says why
			return "", nil
		}
		return net.JoinHostPort(accessURL.Hostname(), strconv.Itoa(l.ssh.Addr().(*net.TCPAddr).Port)), nil
	}
	if host, _, ok := daemon.HostPort(opts.sshAccessAddress); !ok || host == "" {
		return "", fault.New(fault.Invalid, "--ssh-access-address %q must be a host and a port", opts.sshAccessAddress).
			WithDetail("It looks like ssh.coder.example.com:22.")
	}
	return opts.sshAccessAddress, nil
}
