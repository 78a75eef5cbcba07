// Package terminal provides terminals that outlive their viewers: a shell on a pseudo terminal, its recent output, and any
// number of viewers.
//
//	viewer ──ptywire──▶ agent: adds environment and folder ──ptywire──▶ Holder ──▶ pty ──▶ shell
//
// A Holder knows neither the mesh nor the server, so it can run in a separate process from the agent, and shells survive the
// agent's restart. A terminal ends with its shell, after a day without viewers, or when the Holder is closed.
//
// A viewer that does not keep up slows the shell down, as a slow terminal does. After a limit it is dropped, and receives the
// latest output when it reconnects.
package terminal
