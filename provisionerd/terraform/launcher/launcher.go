// Package launcher is what our program does when a provisioner starts it to run something in a sandbox. Every Terraform
// command waits for two such starts, and every workspace that is a process of its provisioner keeps one for as long as
// it runs, so they are a program of their own, cmd/coder-sandbox, which links little: it is ready after 2 ms of a
// processor instead of 9, and needs a fifth of the memory. The large program can do the same, for builds that
// lack the small one (package packed).
package launcher

import (
	"os"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/ask"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// Main does what a process with these arguments was started for, if that is a sandbox's business. A process that
// supervises others ends here, with the status of its program.
func Main(args []string) (is bool, err error) {
	if policy, ok := sandbox.CommandFile(args); ok {
		return true, sandbox.Exec(policy, args[1:])
	}
	if len(args) < 2 {
		return false, nil
	}
	switch args[1] {
	case "sandbox-init":
		status, err := sandbox.Init(args[2:])
		if err == nil {
			os.Exit(status)
		}
		return true, err
	case "sandbox-kill":
		return true, sandbox.Kill()
	case "workspace-process":
		return true, ask.Command(args[2:])
	}
	return false, nil
}
