// Package script runs the scripts of a workspace: as the workspace's account, in its environment, with a time limit, their
// output going to a log source and a file.
//
// It knows neither the server nor the mesh. The caller decides when scripts run and whether they may run again.
package script
