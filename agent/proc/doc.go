// Package proc is what the agent knows of processes on its host: the account it runs as, the environment that sessions and
// scripts get, signals to a whole session's process tree, and the burial of orphans.
//
// It knows neither SSH nor the mesh.
package proc
