// Package cli is the command line: one file per command, each with its options, its constructor and its run. Data goes to
// standard output, everything else to standard error; nothing is asked when standard input is no terminal.
//
// Nothing is built before a command needs it: --help and version read no file and make no connection.
//
// It holds what laptops and workspaces need. The server's and the provisioner's commands are handed to Main by the program
// that links them; this package must not know them.
package cli
