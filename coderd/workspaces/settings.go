package workspaces

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
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// change runs fn in a transaction with the workspace in the path, locked, notifies its watchers, and answers with no
// content.
func (s *Service) change(
	w http.ResponseWriter, r *http.Request, action rbac.Action, fn func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error,
) error {
	if err := s.apply(r, action, fn); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// apply is change without an answer.
func (s *Service) apply(
	r *http.Request, action rbac.Action, fn func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error,
) error {
	ws, err := s.workspace(r, action)
	if err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		locked, err := q.LockWorkspace(r.Context(), ws.ID)
		if err != nil {
			return err
		}
		recorded := httpapi.TrailOf(r.Context()).Rows()
		if err := fn(q, locked); err != nil {
			return err
		}
		if httpapi.TrailOf(r.Context()).Rows() == recorded { // fn changed the workspace's own row only
			after, err := q.GetWorkspace(r.Context(), ws.ID)
			if err != nil {
				return err
			}
			if err := s.record(r.Context(), q, audit.OfWorkspace(locked, after), locked); err != nil {
				return err
			}
		}
		return q.NotifyWorkspace(r.Context(), ws.ID)
	})
	if err != nil {
		return fmt.Errorf("change workspace: %w", err)
	}
	return nil
}

func (s *Service) rename(w http.ResponseWriter, r *http.Request) error {
	var req sdk.UpdateWorkspaceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	err := s.change(w, r, rbac.Update, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		if req.Name == "" || req.Name == ws.Name {
			return nil
		}
		if err := CheckName(req.Name); err != nil {
			return err
		}
		return q.RenameWorkspace(r.Context(), dbsqlc.RenameWorkspaceParams{ID: ws.ID, Name: req.Name})
	})
	if database.IsUniqueViolation(err, "workspaces_name") {
		return fault.New(fault.Conflict, "A workspace named %q already exists.", req.Name).WithField("name", "is taken")
	}
	return err
}

func (s *Service) putAutostart(w http.ResponseWriter, r *http.Request) error {
	var req sdk.UpdateAutostartRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.Schedule != nil && *req.Schedule == "" {
		req.Schedule = nil
	}
	return s.change(w, r, rbac.Update, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		if req.Schedule != nil {
			p, err := q.GetTemplatePolicy(r.Context(), ws.TemplateID)
			if err != nil {
				return err
			}
			if err := checkAutostart(p, *req.Schedule); err != nil {
				return err
			}
		}
		return q.UpdateWorkspaceAutostart(r.Context(), dbsqlc.UpdateWorkspaceAutostartParams{
			ID: ws.ID, AutostartSchedule: req.Schedule,
		})
	})
}

// ttl converts milliseconds from a request to the stored value: nil for none.
func ttl(millis *int64) (*int64, error) {
	if millis == nil || *millis == 0 {
		return nil, nil
	}
	// Compare in milliseconds: the number may not fit in nanoseconds.
	if *millis < minTTL.Milliseconds() || *millis > maxTTL.Milliseconds() {
		return nil, fault.New(fault.Invalid, "The autostop duration is invalid.").
			WithField("ttl_ms", "must be from a minute to 30 days, or null for no end")
	}
	seconds := *millis / 1000
	return &seconds, nil
}

func (s *Service) putTTL(w http.ResponseWriter, r *http.Request) error {
	var req sdk.UpdateTTLRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	seconds, err := ttl(req.TTLMillis)
	if err != nil {
		return err
	}
	return s.change(w, r, rbac.Update, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		row, f, err := s.factsOf(r.Context(), q, ws.ID)
		if err != nil {
			return err
		}
		if err := checkTTL(row.DefaultTtlSeconds, row.TemplatePolicy, seconds); err != nil {
			return err
		}
		if err := q.UpdateWorkspaceTTL(r.Context(), dbsqlc.UpdateWorkspaceTTLParams{
			ID: ws.ID, TtlSeconds: seconds,
		}); err != nil || seconds != nil {
			return err // a new time to live counts from the next start
		}
		bounds := f.Build.Bounds
		bounds.TTL, bounds.TTLFrom = 0, policy.TTLNone
		return storeBounds(r.Context(), q, row.BuildID, f, bounds, bounds.Max)
	})
}

func (s *Service) putExtend(w http.ResponseWriter, r *http.Request) error {
	var req sdk.ExtendRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	var stops time.Time
	err := s.apply(r, rbac.Update, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		latest, err := q.GetLatestBuild(r.Context(), ws.ID)
		if err != nil {
			return err
		}
		running := sdk.Transition(latest.Transition).Status(sdk.JobStatus(latest.JobStatus)) == sdk.WorkspaceRunning
		if !running || latest.Deadline == nil {
			return fault.New(fault.Conflict, "The workspace %q is not set to stop.", ws.Name).WithDetail("Start it, or set autostop for later starts: coder schedule stop %s 8h", shell.POSIX(ws.Name))
		}
		now := s.opts.Now()
		if !req.Deadline.After(now) || req.Deadline.After(now.Add(maxTTL)) {
			return fault.New(fault.Invalid, "The deadline is invalid.").
				WithField("deadline", "must be within the next 30 days")
		}
		if latest.MaxDeadline != nil && req.Deadline.After(*latest.MaxDeadline) {
			return fault.New(fault.Invalid, "The deadline is invalid.").WithField("deadline", "must not be after "+latest.MaxDeadline.UTC().Format(time.RFC3339)+", when the template requires a stop")
		}
		if err := q.ExtendBuild(r.Context(), dbsqlc.ExtendBuildParams{
			ID: latest.ID, Deadline: &req.Deadline, ExtendedAt: &now,
		}); err != nil {
			return err
		}
		_, f, err := s.factsOf(r.Context(), q, ws.ID)
		if err != nil {
			return err
		}
		stops = f.WillStop()
		return nil
	})
	if err != nil {
		return err
	}
	switch text := req.Deadline.UTC().Format(time.RFC3339); {
	case stops.IsZero():
		text = "The workspace's deadline is " + text + ", but its schedule starts it again before it stops."
		return httpapi.Write(w, http.StatusOK, sdk.Response{Message: text})
	case !stops.Equal(req.Deadline):
		return httpapi.Write(w, http.StatusOK, sdk.Response{
			Message: "The workspace now stops at " + stops.UTC().Format(time.RFC3339) + ".",
			Detail:  "Its schedule starts it again before " + text + ", so its autostop duration counts from then.",
		})
	default:
		return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The workspace now stops at " + text + "."})
	}
}

func checkUpdates(u sdk.AutomaticUpdates) error {
	if u != sdk.UpdatesAlways && u != sdk.UpdatesNever {
		return fault.New(fault.Invalid, "Automatic updates cannot be %q.", u).
			WithField("automatic_updates", "must be always or never")
	}
	return nil
}

func (s *Service) putAutomaticUpdates(w http.ResponseWriter, r *http.Request) error {
	var req sdk.UpdateAutomaticUpdatesRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkUpdates(req.AutomaticUpdates); err != nil {
		return err
	}
	return s.change(w, r, rbac.Update, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		return q.UpdateWorkspaceAutomaticUpdates(r.Context(), dbsqlc.UpdateWorkspaceAutomaticUpdatesParams{
			ID: ws.ID, AutomaticUpdates: string(req.AutomaticUpdates),
		})
	})
}

func (s *Service) putFavorite(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, rbac.Read, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		if err := q.FavoriteWorkspace(r.Context(), dbsqlc.FavoriteWorkspaceParams{
			UserID: httpapi.ActorFrom(r.Context()).UserID, WorkspaceID: ws.ID,
		}); err != nil {
			return err
		}
		return s.record(r.Context(), q, audit.Entry{Diff: audit.Diff{}.Field("favorite", false, true)}, ws)
	})
}

func (s *Service) deleteFavorite(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, rbac.Read, func(q *dbsqlc.Queries, ws dbsqlc.Workspace) error {
		if err := q.UnfavoriteWorkspace(r.Context(), dbsqlc.UnfavoriteWorkspaceParams{
			UserID: httpapi.ActorFrom(r.Context()).UserID, WorkspaceID: ws.ID,
		}); err != nil {
			return err
		}
		return s.record(r.Context(), q, audit.Entry{Diff: audit.Diff{}.Field("favorite", true, false)}, ws)
	})
}

// postUsage records that the workspace is in use. It writes at most once a minute.
func (s *Service) postUsage(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Connect)
	if err != nil {
		return err
	}
	if err := s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		touched, err := q.TouchWorkspace(r.Context(), ws.ID)
		if err != nil {
			return err
		}
		latest, err := q.GetLatestBuild(r.Context(), ws.ID)
		if err != nil {
			return err
		}
		bumped, err := q.BumpWorkspaceDeadline(r.Context(), latest.ID)
		if err != nil || touched+bumped == 0 {
			return err
		}
		return q.NotifyWorkspace(r.Context(), ws.ID)
	}); err != nil {
		return fmt.Errorf("note usage: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
