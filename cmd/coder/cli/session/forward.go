package session

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/forward"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// forwardAgent forwards the SSH agent at the socket to the session.
func forwardAgent(client *ssh.Client, session *ssh.Session, socket string) error {
	if socket == "" {
		socket = os.Getenv("SSH_AUTH_SOCK")
	}
	if socket == "" {
		return fault.New(fault.Invalid, "no SSH agent is running here: $SSH_AUTH_SOCK is not set")
	}
	if err := agent.ForwardToRemote(client, socket); err != nil {
		return fault.New(fault.Unavailable, "cannot forward the SSH agent: %w", err)
	}
	if err := agent.RequestAgentForwarding(session); err != nil {
		return fault.New(fault.Unavailable, "the workspace refuses a forwarded SSH agent: %w", err)
	}
	return nil
}

// remoteForward makes the workspace listen, and forwards its connections to this machine until the client is closed.
func (s *Session) remoteForward(ctx context.Context, client *ssh.Client, text string, wg *sync.WaitGroup) error {
	spec, err := forward.ParseRemote(text)
	if err != nil {
		return err
	}
	var l net.Listener
	if spec.Network == "unix" {
		l, err = client.ListenUnix(spec.Remote)
	} else {
		l, err = client.Listen("tcp", spec.Remote)
	}
	if err != nil {
		return fault.New(fault.Conflict, "the workspace cannot listen on %s: %w", spec.Remote, err)
	}
	wg.Go(func() {
		var d net.Dialer
		forward.ServeTCP(ctx, l, func() (net.Conn, error) { return d.DialContext(ctx, spec.DialNet, spec.Local) },
			func(err error) { fmt.Fprintf(s.Streams.Err, "remote forward to %s: %v\r\n", spec.Local, err) })
	})
	return nil
}
