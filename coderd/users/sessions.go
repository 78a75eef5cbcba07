package users

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxSessions is the most sessions that one page of a list contains.
const maxSessions = 1000

// sessionsOf returns the user in the path if the actor may read and end the user's sessions: their own, with a token
// that reaches keys, or those of an account that the actor may manage.
func (s *Service) sessionsOf(r *http.Request, action rbac.Action) (dbsqlc.User, error) {
	actor := httpapi.ActorFrom(r.Context())
	user, err := s.Find(r.Context(), actor, r.PathValue("user"))
	if err == nil && user.ID == actor.UserID {
		return s.Target(r, action, rbac.APIKey)
	}
	return s.Target(r, rbac.Manage, rbac.User)
}

func (s *Service) listSessions(w http.ResponseWriter, r *http.Request) error {
	user, err := s.sessionsOf(r, rbac.Read)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", maxSessions, maxSessions)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, 1<<30)
	if err != nil {
		return err
	}
	rows, err := s.db.ListSessions(r.Context(), dbsqlc.ListSessionsParams{
		UserID: user.ID, PageLimit: int32(cmp.Or(limit, maxSessions)), PageOffset: int32(offset),
	})
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	out := sdk.List[sdk.UserSession]{}
	for _, k := range rows {
		out = append(out, sdk.UserSession{
			ID: k.ID, Device: deviceOf(k.UserAgent), UserAgent: k.UserAgent, Address: k.Address, CreatedAt: k.CreatedAt,
			LastUsedAt: k.LastUsedAt,
			ExpiresAt:  k.ExpiresAt, Current: k.ID == httpapi.ActorFrom(r.Context()).KeyID,
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// endSession ends one session. It tells nothing of keys that are no sessions.
func (s *Service) endSession(w http.ResponseWriter, r *http.Request) error {
	user, err := s.sessionsOf(r, rbac.Delete)
	if err != nil {
		return err
	}
	// It may be the request's own session: see logout.
	ctx := context.WithoutCancel(r.Context())
	err = s.endKey(ctx, user, r.PathValue("key"), func(ctx context.Context, q *dbsqlc.Queries, key dbsqlc.ApiKey) (dbsqlc.ApiKey, error) {
		if key.Kind != kindSession {
			return key, rbac.NotFound(rbac.APIKey)
		}
		_, err := q.DeleteAPIKey(ctx, dbsqlc.DeleteAPIKeyParams{ID: key.ID, UserID: user.ID})
		return dbsqlc.ApiKey{}, err
	})
	if err != nil {
		return lookup.Fault(err, rbac.APIKey, "end session")
	}
	s.notifyRevoked(user.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endSessions signs a user out everywhere, or everywhere but in the session that the request carries. Tokens live on.
func (s *Service) endSessions(w http.ResponseWriter, r *http.Request) error {
	user, err := s.sessionsOf(r, rbac.Delete)
	if err != nil {
		return err
	}
	others, err := httpapi.QueryBool(r, "except_current")
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	p := dbsqlc.EndUserSessionsParams{UserID: user.ID, EndReason: "You signed out everywhere."}
	if user.ID != actor.UserID {
		p.EndReason = "An administrator signed you out everywhere."
	}
	if others {
		p.KeptID = actor.KeyID
	}
	ctx := context.WithoutCancel(r.Context())
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		n, err := q.EndUserSessions(ctx, p)
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.Entry{ID: user.ID, Name: user.Username, Fields: map[string]any{
			"sessions": n,
		}})
	})
	if err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	s.log.InfoContext(ctx, "user signed out everywhere", "user", user.Username, "actor", actor.Username)
	s.notifyRevoked(user.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
