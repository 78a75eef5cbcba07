// Command coder-sandbox starts and supervises what a provisioner runs in sandboxes (package launcher). The server's
// program contains it, and unpacks it into its cache folder. People do not run it.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/launcher"
)

func main() {
	is, err := launcher.Main(os.Args)
	if !is {
		err = errors.New("this program is for provisioners' own use")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "coder:", err)
		os.Exit(1)
	}
}
