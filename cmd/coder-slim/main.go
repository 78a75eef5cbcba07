// Command coder-slim is the program that laptops download and workspaces run: the command line and the agent, without the
// server, the provisioner and what they pull in.
package main

import (
	"os"

	"github.com/codermesh/codermesh/cmd/coder/cli"
)

func main() { os.Exit(cli.Main()) }
