package workspaces

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestWaitingLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  sdk.ProvisionerJob
		want string
	}{
		"queued": {sdk.ProvisionerJob{Status: sdk.JobPending, QueuePosition: 2, QueueSize: 3, WaitingReason: "All are busy."}, "Queued, position 2 of 3: All are busy."},
		"runs":   {sdk.ProvisionerJob{Status: sdk.JobRunning}, ""},
		"its provisioner is offline": {sdk.ProvisionerJob{Status: sdk.JobRunning, WaitingReason: "The provisioner p1 has been offline since noon.", WaitingRemedy: "Cancel it."},
			"The provisioner p1 has been offline since noon. Cancel it."},
		"has ended": {sdk.ProvisionerJob{Status: sdk.JobFailed, WaitingReason: "The provisioner p1 has been offline since noon."}, ""},
	} {
		if got := waitingLine(c.job); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
