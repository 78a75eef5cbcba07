package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/internal/fault"
)

// forwardAgent lets the session use the SSH agent behind the socket.
func forwardAgent(client *ssh.Client, session *ssh.Session, socket string) error {
	if socket == "" {
		socket = os.Getenv("SSH_AUTH_SOCK")
	}
	if socket == "" {
		return fault.New(fault.Invalid, "no SSH agent runs here: $SSH_AUTH_SOCK is not set")
	}
	if err := agent.ForwardToRemote(client, socket); err != nil {
		return fault.New(fault.Unavailable, "the SSH agent cannot be forwarded: %w", err)
	}
	if err := agent.RequestAgentForwarding(session); err != nil {
		return fault.New(fault.Unavailable, "the workspace refuses to use an SSH agent: %w", err)
	}
	return nil
}

// remoteSpec is one forward from the workspace to this machine.
type remoteSpec struct {
	network, remote string // tcp or unix, and where the workspace listens
	dialNet, local  string // tcp or unix, and where it leads
}

// parseRemoteForward reads [address:]port:host:port, or socket:socket with absolute paths.
func parseRemoteForward(spec string) (remoteSpec, error) {
	bad := fault.New(fault.Invalid, "--remote-forward %q is not [address:]port:host:port or /socket:/socket", spec)
	if strings.HasPrefix(spec, "/") {
		remote, local, ok := strings.Cut(spec, ":")
		if !ok || !strings.HasPrefix(local, "/") {
			return remoteSpec{}, bad
		}
		return remoteSpec{"unix", remote, "unix", local}, nil
	}
	parts := splitColons(spec)
	if len(parts) == 3 {
		parts = append([]string{"127.0.0.1"}, parts...)
	}
	if len(parts) != 4 || parts[0] == "" || parts[2] == "" {
		return remoteSpec{}, bad
	}
	for _, port := range []string{parts[1], parts[3]} {
		if _, err := parsePort(port); err != nil {
			return remoteSpec{}, bad
		}
	}
	return remoteSpec{"tcp", net.JoinHostPort(parts[0], parts[1]), "tcp", net.JoinHostPort(parts[2], parts[3])}, nil
}

// splitColons splits at colons outside of brackets, and takes the brackets off.
func splitColons(text string) (parts []string) {
	depth, start := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ':' && depth == 0:
			parts = append(parts, strings.Trim(text[start:i], "[]"))
			start = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		}
	}
	return parts
}

// remoteForward makes the workspace listen, and carries its connections to this machine until the client is closed.
func (a *app) remoteForward(ctx context.Context, client *ssh.Client, text string, wg *sync.WaitGroup) error {
	spec, err := parseRemoteForward(text)
	if err != nil {
		return err
	}
	var l net.Listener
	if spec.network == "unix" {
		l, err = client.ListenUnix(spec.remote)
	} else {
		l, err = client.Listen("tcp", spec.remote)
	}
	if err != nil {
		return fault.New(fault.Conflict, "the workspace cannot listen on %s: %w", spec.remote, err)
	}
	wg.Go(func() {
		var d net.Dialer
		serveTCP(ctx, l, func() (net.Conn, error) { return d.DialContext(ctx, spec.dialNet, spec.local) },
			func(err error) { fmt.Fprintf(a.streams().Err, "remote forward to %s: %v\r\n", spec.local, err) })
	})
	return nil
}
