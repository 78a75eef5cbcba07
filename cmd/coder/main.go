// Command coder is the whole program: the command line, and with it the server, the provisioner daemon and the
// processes that a provisioner starts for its jobs.
package main

import (
	"fmt"
	"os"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/wsproxy"
)

func main() {
	if is, err := jobProcess(os.Args); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, "coder:", err)
			os.Exit(1)
		}
		return
	}
	if err := awaitSuccession(); err != nil {
		fmt.Fprintln(os.Stderr, "coder:", err)
		os.Exit(1)
	}
	reset := resetPasswordCmd() // also below server; scripts know it by this name
	reset.Hidden = true
	os.Exit(cli.Main(append(provisionerCmds(), serverCmd(), reset, templatesCmd(), docsCmd(), wsproxy.Command())...))
}
