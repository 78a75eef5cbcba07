package coderd

import (
	"github.com/codermesh/codermesh/coderd/notifications"
	"github.com/codermesh/codermesh/coderd/workspaces"
)

// NewAnnouncer returns what turns announcements of policy into notifications.
func NewAnnouncer(told *notifications.Recorder) workspaces.Announcer { return announcer{told} }
