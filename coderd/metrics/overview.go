package metrics

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// overviewDays is how many days the overview has, today included.
const overviewDays = 30

func (c *Collector) getOverview(w http.ResponseWriter, r *http.Request) error {
	zone, err := httpapi.Zone(r.URL.Query().Get("timezone"), "")
	if err != nil {
		return err
	}
	overview, err := c.overview(r.Context(), time.Now().In(zone))
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, overview)
}

// overview reads the overview as of now, whose time zone is that of the days.
func (c *Collector) overview(ctx context.Context, now time.Time) (out sdk.DeploymentOverview, err error) {
	out.CollectedAt = now.UTC()
	counts, err := c.db.CountOverview(ctx)
	if err != nil {
		return out, fmt.Errorf("count workspaces, users and jobs: %w", err)
	}
	out.Workspaces = sdk.OverviewWorkspaces{
		Total: counts.Workspaces, Running: counts.Running, Stopped: counts.Stopped, Building: counts.Building,
		Pending: counts.Pending, Failed: counts.Failed, Dormant: counts.Dormant, Prebuilt: counts.Prebuilt,
	}
	out.Users = sdk.OverviewUsers{
		Active: counts.ActiveUsers, Dormant: counts.DormantUsers, Suspended: counts.SuspendedUsers,
		SeenHour: counts.SeenUsers,
	}
	out.Queue = sdk.OverviewQueue{
		Waiting: counts.Waiting, Running: counts.Busy, OldestWaitingSeconds: counts.OldestSeconds,
		Provisioners: counts.Provisioners,
	}
	if out.Days, err = c.days(ctx, now); err != nil {
		return out, err
	}
	if out.Costs, err = c.costs(ctx); err != nil {
		return out, err
	}
	servers, err := c.db.ListServers(ctx, database.ServerLifetime.Seconds())
	if err != nil {
		return out, fmt.Errorf("list servers: %w", err)
	}
	for _, s := range servers {
		out.Servers = append(out.Servers, sdk.OverviewServer{
			ID: s.ID, ReplicaURL: s.Url, Version: s.Version, Region: s.Region, StartedAt: s.StartedAt,
		})
	}
	versions, err := c.db.CountAgentVersions(ctx)
	if err != nil {
		return out, fmt.Errorf("count versions of agents: %w", err)
	}
	for _, v := range versions {
		out.AgentVersions = append(out.AgentVersions,
			sdk.AgentVersion{Version: v.Version, Agents: v.Agents, Connected: v.Connected})
	}
	return out, nil
}

// days counts builds and users on the last days.
func (c *Collector) days(ctx context.Context, now time.Time) ([]sdk.OverviewDay, error) {
	out := make([]sdk.OverviewDay, overviewDays)
	begins := make([]time.Time, overviewDays)
	for i := range out {
		// A day of summer time may have 23 or 25 hours.
		begins[i] = time.Date(now.Year(), now.Month(), now.Day()-overviewDays+1+i, 0, 0, 0, 0, now.Location())
		out[i].Date = begins[i].Format(time.DateOnly)
	}
	builds, err := c.db.CountBuildsByDay(ctx, dbsqlc.CountBuildsByDayParams{Days: begins, Since: begins[0]})
	if err != nil {
		return nil, fmt.Errorf("count builds by day: %w", err)
	}
	for _, b := range builds {
		day := &out[b.Day-1]
		day.Builds, day.Failed, day.Canceled = b.Builds, b.Failed, b.Canceled
	}
	users, err := c.db.CountUsersByDay(ctx, dbsqlc.CountUsersByDayParams{Days: begins, Since: begins[0]})
	if err != nil {
		return nil, fmt.Errorf("count users by day: %w", err)
	}
	for _, u := range users {
		out[u.Day-1].Users = u.Users
	}
	return out, nil
}

// costs sums up what workspaces cost.
func (c *Collector) costs(ctx context.Context) (out sdk.OverviewCosts, err error) {
	rows, err := c.db.ListCosts(ctx)
	if err != nil {
		return out, fmt.Errorf("list costs: %w", err)
	}
	for _, row := range rows {
		cost := sdk.CostOf{
			ID: row.ID, Name: row.Name, DisplayName: row.DisplayName, OrganizationName: row.OrganizationName,
			Workspaces: row.Workspaces, Running: row.Running, DailyCost: row.DailyCost,
		}
		switch row.Kind {
		case "template":
			out.Templates = append(out.Templates, cost)
			out.DailyCost += cost.DailyCost // each workspace has one template
		case "group":
			out.Groups = append(out.Groups, cost)
		default:
			out.Users = append(out.Users, cost)
		}
	}
	return out, nil
}
