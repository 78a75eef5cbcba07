package sdk

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// DeploymentOverview is what owners of the deployment see first: what runs, what waits, who uses it, what it costs, and
// which programs serve it. Every list is complete.
type DeploymentOverview struct {
	CollectedAt time.Time          `json:"collected_at"`
	Workspaces  OverviewWorkspaces `json:"workspaces"`
	Users       OverviewUsers      `json:"users"`
	Queue       OverviewQueue      `json:"queue"`
	// Days are the last 30 days, oldest first, without gaps; the last one is today, and goes on.
	Days  List[OverviewDay] `json:"days"`
	Costs OverviewCosts     `json:"costs"`
	// Servers are the server processes that run, oldest first.
	Servers List[OverviewServer] `json:"servers"`
	// AgentVersions are the versions of agents, the most frequent first.
	AgentVersions List[AgentVersion] `json:"agent_versions"`
}

// OverviewWorkspaces counts the workspaces that are not deleted. Each is in one of Running to Failed, by what its
// latest build left.
type OverviewWorkspaces struct {
	Total    int64 `json:"total"`
	Running  int64 `json:"running"`
	Stopped  int64 `json:"stopped"`
	Building int64 `json:"building"`
	Pending  int64 `json:"pending"` // its build waits for a provisioner
	Failed   int64 `json:"failed"`  // or canceled
	Dormant  int64 `json:"dormant"`
	Prebuilt int64 `json:"prebuilt"` // no user has claimed it yet
}

// OverviewUsers counts the users who are not deleted, by status.
type OverviewUsers struct {
	Active    int64 `json:"active"`
	Dormant   int64 `json:"dormant"`
	Suspended int64 `json:"suspended"`
	SeenHour  int64 `json:"seen_last_hour"` // of all statuses, who were seen within the last hour
}

// OverviewQueue counts the jobs that have not ended, builds and imports of all organizations, and the provisioners that
// are connected.
type OverviewQueue struct {
	Waiting              int64   `json:"waiting"`
	Running              int64   `json:"running"`
	OldestWaitingSeconds float64 `json:"oldest_waiting_seconds"` // for which the oldest job has waited; 0 if none waits
	Provisioners         int64   `json:"provisioners"`
}

// OverviewDay is one day in the time zone of the request. Builds reach back as far as they are kept, users as far as
// the connection log does.
type OverviewDay struct {
	Date     string `json:"date"`     // 2026-11-23
	Builds   int64  `json:"builds"`   // that ended on this day, however they did
	Failed   int64  `json:"failed"`   // of these
	Canceled int64  `json:"canceled"` // of these
	Users    int64  `json:"users"`    // who were connected to a workspace
}

// OverviewCosts is what workspaces cost a day, in credits, as quotas count it: the daily_cost of each workspace's
// newest build that ended with resources, so that what stopped workspaces keep counts too.
type OverviewCosts struct {
	DailyCost int64        `json:"daily_cost"` // of all
	Templates List[CostOf] `json:"templates"`
	// Groups has the costs of their members' workspaces in the group's organization. A user can be in several groups,
	// so the sum of groups can exceed that of all workspaces.
	Groups List[CostOf] `json:"groups"`
	Users  List[CostOf] `json:"users"` // of owners; "prebuilds" owns those that no user has claimed yet
}

// CostOf is what the workspaces of a template, a group or a user cost a day. Lists have the dearest first, and leave
// out those without workspaces.
type CostOf struct {
	ID               uuid.UUID `json:"id"`
	Name             string    `json:"name"`
	DisplayName      string    `json:"display_name"`
	OrganizationName string    `json:"organization_name"` // "" for a user
	Workspaces       int64     `json:"workspaces"`
	Running          int64     `json:"running"`
	DailyCost        int64     `json:"daily_cost"` // credits
}

// OverviewServer is a server process.
type OverviewServer struct {
	ID         uuid.UUID `json:"id"`
	ReplicaURL string    `json:"replica_url"` // at which the other servers reach it
	Version    string    `json:"version"`
	Region     string    `json:"region"`
	StartedAt  time.Time `json:"started_at"`
}

// AgentVersion counts the agents of workspaces with a version.
type AgentVersion struct {
	Version   string `json:"version"` // with which they connected last; "" for those that have not connected yet
	Agents    int64  `json:"agents"`
	Connected int64  `json:"connected"` // of these, now
}

// DeploymentOverview returns the overview, with days in a time zone by its IANA name; "" means UTC. Only owners of the
// deployment may read it.
func (c *Client) DeploymentOverview(ctx context.Context, zone string) (DeploymentOverview, error) {
	return get[DeploymentOverview](ctx, c, "deployment/overview?"+url.Values{"timezone": {zone}}.Encode())
}
