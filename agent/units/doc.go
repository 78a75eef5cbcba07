// Package units lets the scripts of a workspace wait for each other. A unit is a name that a script gives to what it does:
//
//	want B A     B cannot start before A is complete
//	start B      blocks until everything that B wants is complete
//	complete B   lets those start that want B
//
// Scripts reach the agent over a Unix socket that only the workspace's account can open: one line of JSON per connection, and one line as
// its answer. Units survive a restart of the agent; a new build starts without any.
package units
