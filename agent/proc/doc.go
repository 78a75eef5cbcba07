// Package proc handles processes on the agent's host: the account it runs as, the environment of sessions and scripts,
// signals to the process tree of a session, and the reaping of orphans.
//
// It knows neither SSH nor the mesh.
package proc
