package coderd

import (
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
)

// NewAnnouncer returns what turns announcements of policy into notifications.
func NewAnnouncer(told *notifications.Recorder) workspaces.Announcer { return announcer{told} }
