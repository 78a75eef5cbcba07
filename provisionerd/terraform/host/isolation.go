package host

import (
	"fmt"
	"strings"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// isolation is how templates are confined on this host: in bubblewrap's namespaces, by separate accounts, or both; and
// in any case by Landlock and a system call filter if the kernel supports them.
type isolation struct {
	none       bool // the operator wants no isolation
	abi        int  // Landlock's version, 0 when the kernel has none
	bubblewrap string
	accounts   *accounts
	mirrors    []string // folders that providers are linked from
	// concerns are what an operator should know about it, as sentences.
	concerns []string
}

// confined reports whether templates are kept from the daemon and from each other.
func (i isolation) confined() bool { return i.bubblewrap != "" || i.accounts != nil }

// countsProcesses reports whether the kernel counts a job's processes separately, by account or user namespace, so that
// a resource limit can bound them.
func (i isolation) countsProcesses() bool {
	return i.accounts != nil || i.bubblewrap != "" && sandbox.NamespacesCount()
}

func (i isolation) String() string {
	if i.none {
		return "none, environment allow-list"
	}
	var parts []string
	if i.bubblewrap != "" {
		parts = append(parts, "namespaces by bubblewrap")
	}
	if i.accounts != nil {
		parts = append(parts, "an account per job")
	}
	if i.abi > 0 {
		parts = append(parts, fmt.Sprintf("Landlock ABI %d", i.abi))
	}
	if sandbox.CallFilter(false) != nil {
		parts = append(parts, "system call filter")
	}
	return strings.Join(append(parts, "environment allow-list"), ", ")
}
