package coderd

import (
	"fmt"

	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coderd/sshca"
	"github.com/codermesh/codermesh/v2/coderd/sshgateway"
)

// newSSHGateway makes the gateway for stock SSH clients. Without a listener it only says that there is none.
func (s *Server) newSSHGateway(keys *hostkeys.Keys, signer *signed.Signer) *sshgateway.Gateway {
	return sshgateway.New(sshgateway.Options{
		Logger: s.log, HostKey: keys.Gateway(), Address: s.opts.SSHAccess, MaxKeyLifetime: s.opts.MaxSSHKeyLifetime,
		Keys: s.SSHKeys, Certificates: s.SSHCA, Accounts: s.Users, Agents: s.reachable(), Mesh: s.Mesh,
		Connections: s.Connections, Workspaces: s.wakes(), Regions: s.Regions, RegionKey: keys.Region, Signer: signer,
	})
}

// agentKeys are the host keys of agents, and their certificates.
type agentKeys struct {
	*hostkeys.Keys
	*sshca.Service
}

// wakes returns what starts stopped workspaces for the gateway.
func (s *Server) wakes() sshgateway.Workspaces {
	if s.opts.SSHNoAutostart {
		return nil
	}
	return s.Workspaces
}

// serveSSH accepts SSH clients, if the server has an address for them.
func (s *Server) serveSSH() {
	if s.opts.SSH == nil {
		return
	}
	s.running.Go(func() {
		if err := s.SSHGateway.Serve(s.opts.SSH); err != nil {
			s.fail(fmt.Errorf("serve %s: %w", s.opts.SSH.Addr(), err))
		}
	})
}
