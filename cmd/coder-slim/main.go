// Command coder-slim is the program that laptops download and workspaces run: the command line, the agent and the
// region proxy, without the server, the provisioner and what they pull in.
package main

import (
	"os"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/wsproxy"
)

func main() { os.Exit(cli.Main(wsproxy.Command())) }
