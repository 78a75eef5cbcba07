// Package meshport lists the ports that services use on mesh addresses. They exist nowhere else.
package meshport

const (
	SSH       = 1  // agent: SSH server
	Terminal  = 2  // agent: reconnecting terminals
	Speedtest = 3  // agent: throughput test
	AgentRPC  = 4  // agent: what coderd asks of it
	Session   = 5  // agent: SSH channels without SSH's own encryption (sshmux), over several connections (stripe)
	SSHWide   = 6  // agent: SSH server, over several connections (stripe)
	ServerRPC = 80 // coderd: AgentService and ProvisionerService (connect over HTTP/2, unencrypted inside WireGuard)
)
