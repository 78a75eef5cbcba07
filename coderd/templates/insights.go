package templates

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	day = 24 * time.Hour
	// dauDays are the days that the counts of daily users cover, today included.
	dauDays = 60
	// maxInsights bounds the period of a report: each reads the whole connection log of its period.
	maxInsights = 366 * day
)

// builtinApps are the ways into every workspace, by their names in the connection log.
var builtinApps = map[string]struct{ slug, name string }{
	"ssh":              {"ssh", "SSH"},
	"vscode":           {"vscode", "Visual Studio Code"},
	"jetbrains":        {"jetbrains", "JetBrains"},
	"reconnecting_pty": {"reconnecting-pty", "Web Terminal"},
	"port_forwarding":  {"port-forwarding", "Port forwarding"},
}

// period is what a report covers.
type period struct {
	since, until time.Time
	templates    []uuid.UUID
}

// deploymentDAUs serves the number of users per day.
func (s *Service) deploymentDAUs(w http.ResponseWriter, r *http.Request) error {
	if err := httpapi.ActorFrom(r.Context()).May(rbac.Read, rbac.Of(rbac.Deployment, uuid.Nil)); err != nil {
		return err
	}
	return s.writeDAUs(w, r, nil)
}

// templateDAUs serves the number of a template's users per day.
func (s *Service) templateDAUs(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Update)
	if err != nil {
		return err
	}
	return s.writeDAUs(w, r, []uuid.UUID{t.ID})
}

func (s *Service) writeDAUs(w http.ResponseWriter, r *http.Request, templates []uuid.UUID) error {
	offset := 0
	if text := r.URL.Query().Get("tz_offset"); text != "" {
		var err error
		if offset, err = strconv.Atoi(text); err != nil || offset < -12 || offset > 14 {
			return fault.New(fault.Invalid, "There is no such time zone.").
				WithField("tz_offset", "must be a number of hours from -12 to 14")
		}
	}
	zone := time.FixedZone("", offset*int(time.Hour/time.Second))
	now := time.Now().In(zone)
	until := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, zone)
	p := period{since: until.Add(-dauDays * day), until: until, templates: templates}
	users, err := s.activeUsers(r.Context(), p, day)
	if err != nil {
		return err
	}
	out := sdk.DAUsResponse{TZHourOffset: offset}
	for i := range dauDays {
		out.Entries = append(out.Entries, sdk.DAUEntry{
			Date: p.since.Add(time.Duration(i) * day).Format(time.DateOnly), Amount: users[i],
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// activeUsers returns how many users were connected, by interval of a period.
func (s *Service) activeUsers(ctx context.Context, p period, step time.Duration) (map[int]int64, error) {
	rows, err := s.opts.DB.CountActiveUsers(ctx, dbsqlc.CountActiveUsersParams{
		Since: p.since, Until: p.until, StepSeconds: int32(step / time.Second), TemplateIds: p.templates,
	})
	if err != nil {
		return nil, fmt.Errorf("count active users: %w", err)
	}
	out := map[int]int64{}
	for _, row := range rows {
		out[int(row.Step)] = row.Users
	}
	return out, nil
}

func (s *Service) userActivity(w http.ResponseWriter, r *http.Request) error {
	p, err := s.period(r)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListUserActivity(r.Context(), dbsqlc.ListUserActivityParams{
		Since: p.since, Until: p.until, TemplateIds: p.templates,
	})
	if err != nil {
		return fmt.Errorf("list activity of users: %w", err)
	}
	out := sdk.UserActivityReport{StartTime: p.since, EndTime: p.until, TemplateIDs: p.templates}
	for _, row := range rows {
		out.Users = append(out.Users, sdk.UserActivity{
			TemplateIDs: row.TemplateIds, UserID: row.UserID, Username: row.Username, Seconds: row.Seconds,
		})
	}
	return httpapi.Write(w, http.StatusOK, sdk.UserActivityInsightsResponse{Report: out})
}

// userLatency serves the round trips of users' connections.
func (s *Service) userLatency(w http.ResponseWriter, r *http.Request) error {
	p, err := s.period(r)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListUserLatency(r.Context(), dbsqlc.ListUserLatencyParams{
		Since: p.since, Until: p.until, TemplateIds: p.templates,
	})
	if err != nil {
		return fmt.Errorf("list latency of users: %w", err)
	}
	const micros = 1000 // in a millisecond
	out := sdk.UserLatencyReport{StartTime: p.since, EndTime: p.until, TemplateIDs: p.templates}
	for _, row := range rows {
		out.Users = append(out.Users, sdk.UserLatency{
			TemplateIDs: row.TemplateIds, UserID: row.UserID, Username: row.Username,
			LatencyMillis: sdk.LatencyPercentiles{P50: row.P50 / micros, P95: row.P95 / micros},
		})
	}
	return httpapi.Write(w, http.StatusOK, sdk.UserLatencyInsightsResponse{Report: out})
}

// templateInsights serves the report of a period, and that of each of its intervals if the request names their length.
func (s *Service) templateInsights(w http.ResponseWriter, r *http.Request) error {
	p, err := s.period(r)
	if err != nil {
		return err
	}
	sections := []string{"report", "interval_reports"}
	if text := r.URL.Query().Get("sections"); text != "" {
		for _, section := range strings.Split(text, ",") {
			if !slices.Contains(sections, section) {
				return fault.New(fault.Invalid, "There is no such section.").
					WithField("sections", "must be report, interval_reports or both")
			}
		}
		sections = strings.Split(text, ",")
	}
	interval := sdk.InsightsInterval(r.URL.Query().Get("interval"))
	steps := map[sdk.InsightsInterval]time.Duration{"": 0, sdk.IntervalDay: day, sdk.IntervalWeek: 7 * day}
	step, known := steps[interval]
	if !known {
		return fault.New(fault.Invalid, "There is no such interval.").WithField("interval", "must be day or week")
	}
	var out sdk.TemplateInsightsResponse
	if slices.Contains(sections, "report") {
		if out.Report, err = s.templateReport(r.Context(), p); err != nil {
			return err
		}
	}
	if step > 0 && slices.Contains(sections, "interval_reports") {
		users, err := s.activeUsers(r.Context(), p, step)
		if err != nil {
			return err
		}
		for i, since := 0, p.since; since.Before(p.until); i, since = i+1, since.Add(step) {
			until := since.Add(step)
			if until.After(p.until) {
				until = p.until
			}
			out.IntervalReports = append(out.IntervalReports, sdk.TemplateIntervalReport{
				StartTime: since, EndTime: until, TemplateIDs: p.templates, Interval: interval, ActiveUsers: users[i],
			})
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) templateReport(ctx context.Context, p period) (*sdk.TemplateReport, error) {
	out := &sdk.TemplateReport{StartTime: p.since, EndTime: p.until, TemplateIDs: p.templates}
	users, err := s.activeUsers(ctx, p, p.until.Sub(p.since)+time.Second) // one interval, which has all of the period
	if err != nil {
		return nil, err
	}
	out.ActiveUsers = users[0]
	rows, err := s.opts.DB.ListAppUsage(ctx, dbsqlc.ListAppUsageParams{
		Since: p.since, Until: p.until, TemplateIds: p.templates,
	})
	if err != nil {
		return nil, fmt.Errorf("list use of apps: %w", err)
	}
	for _, row := range rows {
		app := sdk.AppUsage{
			TemplateIDs: row.TemplateIds, Type: sdk.AppUsageTemplate, Slug: row.Slug, DisplayName: row.Slug,
			Seconds: row.Seconds, TimesUsed: row.TimesUsed,
		}
		if builtin, ok := builtinApps[row.Type]; ok {
			app.Type, app.Slug, app.DisplayName = sdk.AppUsageBuiltin, builtin.slug, builtin.name
		}
		out.AppsUsage = append(out.AppsUsage, app)
	}
	return out, nil
}

// period returns what the request asks for: the templates that it names, each of which the actor must administer, or
// else all that the actor administers.
func (s *Service) period(r *http.Request) (period, error) {
	query, actor := r.URL.Query(), httpapi.ActorFrom(r.Context())
	var p period
	var err error
	if p.since, err = queryTime("start_time", query.Get("start_time")); err != nil {
		return p, err
	}
	if p.until, err = queryTime("end_time", query.Get("end_time")); err != nil {
		return p, err
	}
	if length := p.until.Sub(p.since); length < time.Second || length > maxInsights {
		return p, fault.New(fault.Invalid, "The period is invalid.").
			WithField("end_time", "must be after start_time, by at most 366 days")
	}
	if text := query.Get("template_ids"); text != "" {
		for _, id := range strings.Split(text, ",") {
			id, err := uuid.Parse(id)
			if err != nil {
				return p, fault.New(fault.Invalid, "%q is not an id.", text).
					WithField("template_ids", "must be UUIDs with commas between them")
			}
			t, err := s.opts.DB.GetTemplate(r.Context(), id)
			if err != nil {
				return p, lookup.Fault(err, rbac.Template, "read template")
			}
			if err := actor.May(rbac.Update, object(t)); err != nil {
				return p, err
			}
			p.templates = append(p.templates, id)
		}
		return p, nil
	}
	rows, err := s.opts.DB.ListTemplateRows(r.Context(), readable(actor))
	if err != nil {
		return p, fmt.Errorf("list templates: %w", err)
	}
	p.templates = []uuid.UUID{}
	for _, row := range rows {
		if actor.May(rbac.Update, object(row.Template)) == nil {
			p.templates = append(p.templates, row.Template.ID)
		}
	}
	if len(p.templates) == 0 {
		return p, actor.May(rbac.Update, rbac.Of(rbac.Template, uuid.Nil))
	}
	return p, nil
}

func queryTime(name, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fault.New(fault.Invalid, "The period is invalid.").
			WithField(name, "must be a time such as 2026-11-23T00:00:00Z")
	}
	return at, nil
}
