package notifications

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

const (
	reportEvery   = time.Hour
	reportTimeout = time.Minute
	// maxReported bounds the versions and the workspaces that a report names.
	maxReported = 5
)

// reports reports the failed builds of the last week at the start and then within about an hour after each week's end,
// until Stop.
func (s *Service) reports() {
	for wait := time.Minute + rand.N(time.Minute); ; wait = reportEvery/2 + rand.N(reportEvery) {
		select {
		case <-s.life.Done():
			return
		case <-time.After(wait):
		}
		if err := s.Report(s.life, time.Now()); err != nil && s.life.Err() == nil {
			s.log.Warn("cannot report failed builds", "err", err)
		}
	}
}

// Report tells the administrators of each template which builds failed in the last week (from Monday to Sunday, UTC)
// before now. Every server does so; of one week, each administrator is told once.
func (s *Service) Report(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	to := monday(now)
	week := to.AddDate(0, 0, -7)
	if s.reported.Load() == week.Unix() {
		return nil
	}
	rows, err := s.opts.DB.ListFailedBuilds(ctx, dbsqlc.ListFailedBuildsParams{Since: week, Until: to})
	if err != nil {
		return fmt.Errorf("list failed builds: %w", err)
	}
	for _, of := range byTemplate(rows) {
		if err := s.opts.Recorder.Record(ctx, s.opts.DB.Queries, reportOf(of, week, to)); err != nil {
			return err
		}
	}
	s.reported.Store(week.Unix())
	return nil
}

// monday returns the beginning of a time's week.
func monday(at time.Time) time.Time {
	day := at.UTC().Truncate(24 * time.Hour)
	return day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
}

// byTemplate splits rows by their templates.
func byTemplate(rows []dbsqlc.ListFailedBuildsRow) (all [][]dbsqlc.ListFailedBuildsRow) {
	for i, row := range rows {
		if i == 0 || row.TemplateID != rows[i-1].TemplateID {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], row)
	}
	return all
}

// reportOf returns the report of one template.
func reportOf(rows []dbsqlc.ListFailedBuildsRow, week, to time.Time) Event {
	var failed, total int64
	versions, workspaces := map[string]int64{}, map[string]int64{}
	for _, row := range rows {
		failed, total = failed+row.Failed, total+row.Total
		versions[row.VersionName] += row.Failed
		workspaces[row.OwnerName+"/"+row.WorkspaceName] += row.Failed
	}
	t := rows[0]
	return Event{
		Template: WorkspaceBuildsFailedReport, Targets: []uuid.UUID{t.TemplateID, t.OrganizationID},
		Roles: []string{rbac.RoleTemplateAdmin}, Organization: t.OrganizationID,
		OrganizationRoles: []string{rbac.RoleOrganizationTemplateAdmin},
		Once:              t.TemplateID.String() + " " + week.Format(time.DateOnly),
		Labels: map[string]string{
			"template": t.TemplateName, "failed": strconv.FormatInt(failed, 10), "total": strconv.FormatInt(total, 10),
			"from": week.Format(time.DateOnly), "to": to.AddDate(0, 0, -1).Format(time.DateOnly), "versions": most(versions), "workspaces": most(workspaces),
		},
	}
}

// most lists names by their counts, the highest first.
func most(counts map[string]int64) string {
	var names []string
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names,
		func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	shown := names[:min(len(names), maxReported)]
	var parts []string
	for _, name := range shown {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if rest := len(names) - len(shown); rest > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(parts, ", ")
}
