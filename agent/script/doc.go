// Package script runs the scripts of a workspace as the workspace's account, in its environment and with a time limit.
// Their output goes to a log source and a file.
//
// It knows neither the server nor the mesh. The caller decides when scripts run, and whether they may run again.
package script
