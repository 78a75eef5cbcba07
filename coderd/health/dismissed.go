package health

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const dismissedKey = "health_dismissed"

// storedDismissed returns the names of the sections that are dismissed.
func storedDismissed(ctx context.Context, q *dbsqlc.Queries) ([]string, error) {
	text, err := q.GetSetting(ctx, dismissedKey)
	if database.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read dismissed health checks: %w", err)
	}
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return nil, fmt.Errorf("decode dismissed health checks: %w", err)
	}
	return names, nil
}

// readDismissed reads what is dismissed for a report. While the database does not answer, it is what it last was. The
// caller holds s.mu.
func (s *Service) readDismissed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	names, err := storedDismissed(ctx, s.opts.DB.Queries)
	if err != nil {
		s.opts.Logger.Debug("cannot read dismissed health checks", "err", err)
		return
	}
	s.dismissed = names
}

func settingsOf(sections []string) sdk.HealthSettings {
	var out sdk.HealthSettings
	for _, section := range sections {
		out.DismissedHealthchecks = append(out.DismissedHealthchecks, sdk.HealthChecks[section])
	}
	slices.Sort(out.DismissedHealthchecks)
	return out
}

func (s *Service) settings(w http.ResponseWriter, r *http.Request) error {
	names, err := storedDismissed(r.Context(), s.opts.DB.Queries)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, settingsOf(names))
}

// setSettings replaces the dismissed checks. The next report is a new one, on every server within freshFor.
func (s *Service) setSettings(w http.ResponseWriter, r *http.Request) error {
	var req sdk.HealthSettings
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	sections, err := parseDismissed("dismissed_healthchecks", req.DismissedHealthchecks)
	if err != nil {
		return err
	}
	return s.change(w, r, func([]string) []string { return sections })
}

// patchSettings dismisses some checks and lets others count again, and leaves what concurrent requests do with the
// rest.
func (s *Service) patchSettings(w http.ResponseWriter, r *http.Request) error {
	var req sdk.PatchHealthSettingsRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	dismiss, err := parseDismissed("dismiss", req.Dismiss)
	if err != nil {
		return err
	}
	undismiss, err := parseDismissed("undismiss", req.Undismiss)
	if err != nil {
		return err
	}
	for _, section := range dismiss {
		if slices.Contains(undismiss, section) {
			return fault.New(fault.Invalid, "The health check %q cannot be dismissed and counted at once.", sdk.HealthChecks[section]).
				WithField("undismiss", "has a check that dismiss has too")
		}
	}
	return s.change(w, r, func(before []string) []string {
		kept := slices.DeleteFunc(slices.Clone(before), func(section string) bool {
			return slices.Contains(undismiss, section) || slices.Contains(dismiss, section)
		})
		kept = append(kept, dismiss...)
		slices.Sort(kept)
		return kept
	})
}

// change stores the sections that of makes of those that are dismissed, and answers with them. The row is locked
// meanwhile.
func (s *Service) change(w http.ResponseWriter, r *http.Request, of func(before []string) []string) error {
	ctx := r.Context()
	var sections []string
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := q.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{
			Key: dismissedKey, Value: []byte("[]"),
		}); err != nil {
			return err
		}
		if err := q.LockSetting(ctx, dismissedKey); err != nil {
			return err
		}
		before, err := storedDismissed(ctx, q)
		if err != nil {
			return err
		}
		sections = of(before)
		text, err := json.Marshal(sections)
		if err != nil {
			return fmt.Errorf("encode dismissed health checks: %w", err)
		}
		if err := q.UpdateSetting(ctx, dbsqlc.UpdateSettingParams{Key: dismissedKey, Value: text}); err != nil {
			return err
		}
		diff := audit.Diff{}.Field("dismissed_healthchecks", settingsOf(before).DismissedHealthchecks,
			settingsOf(sections).DismissedHealthchecks)
		return audit.Record(ctx, q, audit.Entry{Name: "health settings", Diff: diff})
	})
	if err != nil {
		return fmt.Errorf("store dismissed health checks: %w", err)
	}
	s.mu.Lock()
	s.last = sdk.HealthReport{}
	s.mu.Unlock()
	return httpapi.Write(w, http.StatusOK, settingsOf(sections))
}

// parseDismissed returns the sections that a field of a request names, by their names in the settings or in the report,
// each once.
func parseDismissed(field string, names []string) ([]string, error) {
	sections := []string{}
	for _, name := range names {
		section := ""
		for key, known := range sdk.HealthChecks {
			if name == known || name == key {
				section = key
			}
		}
		if section == "" {
			return nil, fault.New(fault.Invalid, "There is no health check %q.", name).
				WithField(field, "must be of "+strings.Join(slices.Sorted(maps.Values(sdk.HealthChecks)), ", "))
		}
		if !slices.Contains(sections, section) {
			sections = append(sections, section)
		}
	}
	slices.Sort(sections)
	return sections, nil
}
