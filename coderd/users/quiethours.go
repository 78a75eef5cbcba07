package users

import (
	"fmt"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) getQuietHours(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	return s.writeQuietHours(w, r, user)
}

// setQuietHours stores when a user's quiet hours begin. They bound workspaces that run already, too.
func (s *Service) setQuietHours(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.UpdateQuietHoursRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if !s.customQuietHours {
		return fault.New(fault.Forbidden, "This deployment does not allow users to set their quiet hours.").
			WithDetail("Ask its operator: --allow-custom-quiet-hours.")
	}
	if req.Schedule != "" {
		if _, err := policy.ParseQuietHours(req.Schedule); err != nil {
			return err
		}
	}
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, err := q.GetQuietHours(r.Context(), user.ID)
		if err != nil && !database.IsNotFound(err) {
			return err
		}
		if err := q.SetQuietHours(r.Context(), dbsqlc.SetQuietHoursParams{
			UserID: user.ID, Schedule: req.Schedule,
		}); err != nil {
			return err
		}
		entry := audit.OfUser(user, user)
		entry.Diff = entry.Diff.Field("quiet_hours", before.Schedule, req.Schedule)
		return audit.Record(r.Context(), q, entry)
	})
	if err != nil {
		return fmt.Errorf("store quiet hours: %w", err)
	}
	return s.writeQuietHours(w, r, user)
}

func (s *Service) writeQuietHours(w http.ResponseWriter, r *http.Request, user dbsqlc.User) error {
	out := sdk.QuietHours{RawSchedule: s.quietHours, UserCanSet: s.customQuietHours}
	row, err := s.db.GetQuietHours(r.Context(), user.ID)
	if err != nil && !database.IsNotFound(err) {
		return fmt.Errorf("read quiet hours: %w", err)
	}
	if row.Schedule != "" && s.customQuietHours {
		out.RawSchedule, out.UserSet = row.Schedule, true
	}
	parsed, err := policy.ParseQuietHours(out.RawSchedule)
	if err != nil {
		return fmt.Errorf("parse quiet hours: %w", err)
	}
	out.Time, out.Timezone, out.Next = parsed.Clock(), parsed.Location().String(), parsed.Next(time.Now())
	return httpapi.Write(w, http.StatusOK, out)
}
