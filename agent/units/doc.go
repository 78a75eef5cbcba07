// Package units lets the scripts of a workspace wait for each other. A unit is a name that a script gives to its task:
//
//	want B A     B cannot start before A is complete
//	start B      blocks until everything that B wants is complete
//	complete B   lets the units that want B start
//
// Scripts reach the agent over a Unix socket that only the workspace's account can open: one line of JSON per
// connection, and one line as its answer. Units survive a restart of the agent; a new build starts without any.
package units
