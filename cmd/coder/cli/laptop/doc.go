// Package laptop lets every program of a laptop reach workspaces by name: coder connect.
//
//	programs ── TUN device ── tailnet/tunnel ── meshclient ── agents
//	    └────── questions about names ── internal/meshdns
//
// There are two processes. The keeper has root's rights: it creates the device, its routes and the name server's entry,
// starts the server as the user, and takes everything back when the server has ended (Keep). It reads nothing that
// comes from elsewhere. The server (Serve) has the user's rights and session, and reads the rest: packets, questions,
// the API's answers. What a keeper that was killed has left behind is taken back by the next one, or by Restore.
//
// The package knows neither the global flags nor how commands are run. docs/decisions/0055-connect.md has the reasons.
package laptop
