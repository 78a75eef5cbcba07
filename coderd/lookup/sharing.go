package lookup

import "github.com/codermesh/codermesh/v2/internal/fault"

// SharingOff returns the answer to those who may share, in an organization that has switched sharing off.
func SharingOff() error {
	return fault.New(fault.Forbidden, "Sharing is disabled in this organization.").
		WithDetail("Its administrators can enable it: coder organizations settings set workspace-sharing")
}
