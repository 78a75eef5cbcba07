// Package logship keeps the log lines of a workspace's scripts until the server has stored them.
//
// Lines belong to sources. Per source they are numbered from where the server's own count stands, so that a batch whose answer
// was lost is sent again under the same numbers and stored once, also across a restart of the agent. What waits is bounded per
// source; above the bound the lines in the middle give way and are counted in a line of their own: what a program says first
// and last tells most. Sending is paced: a program that prints without end costs neither memory nor the network.
package logship
