// Package meshport lists the ports of services on mesh addresses. These ports exist nowhere else. Ports 1, 5 and 6 were
// SSH's in agents of earlier releases.
package meshport

const (
	Terminal  = 2  // agent: reconnecting terminals
	Speedtest = 3  // agent: throughput test
	AgentRPC  = 4  // agent: calls from coderd
	Session   = 7  // agent: SSH's channels (sshmux)
	Visit     = 8  // agent: ports of the workspace, for region proxies with a visa (package visa)
	SSH       = 22 // agent: SSH, for stock clients
	ServerRPC = 80 // coderd: AgentService and ProvisionerService (connect over HTTP/2, unencrypted inside WireGuard)
)

// Reserved reports whether a TCP port of an agent's mesh address is none of the workspace's own, and no one but
// programs of this mesh has a use for it.
func Reserved(port uint16) bool { return port <= Visit }
