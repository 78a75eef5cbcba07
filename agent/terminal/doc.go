// Package terminal keeps terminals that outlive whoever looks at them: a shell on a pseudo terminal, what it printed last, and
// any number of viewers.
//
//	viewer ──ptywire──▶ agent: adds environment and folder ──ptywire──▶ Holder ──▶ pty ──▶ shell
//
// A Holder knows neither the mesh nor the server, so that it can live in another process than the agent's: that one may be
// restarted while shells go on. A terminal lives until its shell ends, until nobody has looked at it for a day, or until the
// Holder is closed.
//
// A viewer that does not keep up holds the shell back, as a slow terminal does, but only for so long: then it is dropped, and
// gets the latest output when it comes back.
package terminal
