// Package region is a region proxy: a relay and a STUN responder near the workspaces and users of a region, with a URL
// of its own. It dials out to the servers, holds no database, and knows neither users nor workspaces: only which node
// keys may use its relay.
//
//	proxy                                            server
//	GET sdk.ProxyPath, token in a header    ──▶      checks the token's hash
//	Hello{url, stun port, version, check}   ──▶      asks url/CheckPath for the check, so that the URL leads to this proxy
//	                                        ◀──      Update{admit, revoke}, …, Update{synced}
//	                                        ◀──      Update{admit, revoke} whenever keys change
//	                                        ◀──      Update{recheck} when visitors of apps may have lost their rights
//
// Unless it is told not to, the proxy also serves apps (apps.go) and terminals (terminals.go), and if it is told to,
// SSH (ssh.go) and devices with WireGuard (wireguard.go): it asks the servers about each visitor, and receives visas
// with which its node reaches agents. It can make neither tokens nor visas, so it reaches only what a visitor may open,
// while they visit it here. SSH and WireGuard give a client's proof to the gateway alone; so the servers believe the
// proxy about the keys and devices that their users have allowed here, and no others.
//
// While the connection lasts, the servers list the proxy as a region of the relay map (tailnet.RelayMap), and nodes may
// make it their home. Two nodes reach each other through the relay of the receiver's home, so the relays of regions
// need no links to each other, and the proxy no key of theirs. When the connection ends, the servers remove the region
// from the map, and all nodes leave it at once.
//
// A new connection begins with all admitted keys. Those of earlier connections that it does not repeat are revoked
// after a grace period, because a restarted server learns of the nodes only as they return.
package region
