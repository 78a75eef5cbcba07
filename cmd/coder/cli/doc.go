// Package cli is the command line: it assembles the commands, and turns their errors into two lines and an exit code.
// Data goes to standard output, everything else to standard error; the program asks nothing if standard input is not a
// terminal.
//
// Commands are grouped into packages by purpose: workspaces, connect, diagnose, templates, account, provisioners,
// inside. A command has an options struct and a run function, and gets the global flags (package global). Code that
// commands share does not know the global flags: it receives streams, a client and a logger.
//
//	exit, flags, config, output      how a command ends, what it takes, stores and prints
//	organization                     --org, and templates of several organizations
//	follow                           the progress of builds and imports
//	form                             the parameters of a build
//	target, forward, session         reaching an agent; ports; shells and terminals
//
// Nothing is built before a command needs it: --help and version read no file and make no connection.
//
// It holds what laptops and workspaces need. The program that links the server's and the provisioner's commands passes
// them to Main; this package must not know them.
package cli
