// Command coder is the whole program: the command line, and with it the server, the provisioner daemon and the processes that
// a provisioner starts for its jobs.
package main

import (
	"os"

	"github.com/codermesh/codermesh/cmd/coder/cli"
)

func main() {
	os.Exit(cli.Main(append(provisionerCmds(), serverCmd(), workerCmd(), sandboxCmd())...))
}
