// Package logship keeps the log lines of a workspace's scripts until the server has stored them.
//
// Lines belong to sources. The lines of a source continue the server's numbers, so that a batch whose answer was lost
// is sent again under the same numbers and stored once, even across a restart of the agent. The number of waiting lines
// is bounded per source. Above the bound, lines in the middle are dropped, and a separate line reports how many: a
// program's first and last lines matter most. Sending is paced, so a program that prints endlessly costs neither memory
// nor network.
package logship
