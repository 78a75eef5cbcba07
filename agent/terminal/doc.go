// Package terminal keeps terminals that outlive their viewers: a shell on a pseudo terminal, its latest output, and any
// number of viewers.
//
//	viewer ──ptywire──▶ agent: adds environment and folder ──ptywire──▶ Holder ──▶ pty ──▶ shell
//
// A Holder knows neither the mesh nor the server, so it can run outside the agent's process, which may restart while
// shells continue. A terminal lives until its shell ends, until it has had no viewer for a day, or until the Holder is
// closed.
//
// A viewer that does not keep up blocks the shell, as a slow terminal does, but only for a limited time. Then it is
// dropped, and gets the latest output when it reconnects.
package terminal
