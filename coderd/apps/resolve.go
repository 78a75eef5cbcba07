package apps

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/appaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// target is what a place leads to.
type target struct {
	appproxy.App
	asked     appproxy.Place // as in the address
	ownerID   uuid.UUID
	workspace uuid.UUID
	key       []byte // for visas: the hash of the agent's token

	organization uuid.UUID
	sharing      rbac.Sharing
	share        sdk.AppShare
}

// found is the result of looking up a place in the database: nothing, or an app.
type found struct {
	target target
	ok     bool
}

// resolve looks up a place. A place that does not exist is not an error.
func (s *Service) resolve(ctx context.Context, p appproxy.Place) (found, error) {
	if !p.Valid() {
		return found{}, nil
	}
	return s.places.Get(ctx, p, func(ctx context.Context) (found, error) {
		row, err := s.opts.DB.GetAppAgent(ctx, dbsqlc.GetAppAgentParams{
			Owner: p.Owner, Workspace: p.Workspace, Agent: p.Agent,
		})
		if database.IsNotFound(err) {
			return found{}, nil
		}
		if err != nil {
			return found{}, fmt.Errorf("look up app's agent: %w", err)
		}
		a := target{
			App:   appproxy.App{Place: p, AgentID: row.AgentID, Health: sdk.AppDisabled},
			asked: p, ownerID: row.OwnerID, workspace: row.WorkspaceID, key: row.TokenHash, organization: row.OrganizationID, sharing: row.Sharing, share: sdk.ShareOwner,
		}
		a.Place.Agent = strings.ToLower(row.AgentName)
		admitted, err := s.opts.Agents.Admitted(ctx, row.AgentID)
		if err != nil {
			return found{}, err
		}
		a.Running = len(admitted) > 0
		row2, err := s.opts.DB.GetApp(ctx, dbsqlc.GetAppParams{AgentID: row.AgentID, Slug: p.Slug})
		switch {
		case err == nil:
			a.Name, a.share, a.Health = row2.DisplayName, sdk.AppShare(row2.SharingLevel).Within(sdk.AppShare(row.MaxPortShareLevel)), sdk.AppHealth(row2.Health)
			if a.Name == "" {
				a.Name = row2.Slug
			}
			a.locate(row2)
			return found{a, true}, nil
		case !database.IsNotFound(err):
			return found{}, fmt.Errorf("look up app: %w", err)
		}
		var ok bool
		if a.Port, a.TLS, ok = p.Port(); !ok {
			return found{}, nil
		}
		level, err := s.opts.DB.GetPortShareLevel(ctx, dbsqlc.GetPortShareLevelParams{
			WorkspaceID: row.WorkspaceID, AgentName: row.AgentName, Port: int32(a.Port),
		})
		if err == nil {
			a.share = sdk.AppShare(level).Within(sdk.AppShare(row.MaxPortShareLevel))
		} else if !database.IsNotFound(err) {
			return found{}, fmt.Errorf("look up port's sharing: %w", err)
		}
		a.Name = "Port " + strconv.Itoa(int(a.Port))
		return found{a, true}, nil
	})
}

// locate records where a template's app listens.
func (a *target) locate(row dbsqlc.WorkspaceApp) {
	u, err := url.Parse(row.Url)
	switch {
	case row.External:
		a.Unusable = "It is a link to another site. Open it from the dashboard."
	case row.Command != "":
		a.Unusable = "It is a command. Open it in a terminal."
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		a.Unusable = "Its address in the template is not an http or https URL."
	case !appaddr.IsLoopback(u.Hostname()):
		a.Unusable = "Its address in the template must belong to the workspace: it must begin with http://localhost."
	}
	if a.Unusable != "" {
		return
	}
	a.TLS = u.Scheme == "https"
	var ok bool
	if a.Port, ok = appaddr.Port(u); !ok {
		a.Unusable = "Its address in the template has no usable port."
	}
	if a.Start = strings.TrimLeft(u.EscapedPath(), "/"); u.RawQuery != "" {
		a.Start += "?" + u.RawQuery
	}
}

// visitor is the sender of a request. The zero value is not signed in.
type visitor struct {
	actor rbac.Actor
	by    appproxy.ProofKind
}

// may reports whether a visitor may open an app. The template decides with whom an app is shared, and those who may
// share the workspace decide it for ports. Without that, only the workspace's owner and the users with whom it is
// shared may open either; no role grants access.
func (who visitor) may(a target) bool {
	workspace := rbac.Of(rbac.Workspace, a.ownerID).In(a.organization).SharedWith(a.sharing).WithID(a.workspace)
	if a.share != sdk.SharePublic && !who.actor.Covers(rbac.OpenApp, workspace) {
		return false
	}
	switch a.share {
	case sdk.SharePublic:
		return true
	case sdk.ShareAuthenticated:
		return who.actor.SignedIn()
	case sdk.ShareOrganization:
		return who.actor.MemberOf(a.organization)
	default:
		return who.actor.Reaches(workspace)
	}
}

// holder returns the holder of a key, from the database or from memory.
func (s *Service) holder(ctx context.Context, keyID string) (rbac.Actor, error) {
	return s.holders.Get(ctx, keyID,
		func(ctx context.Context) (rbac.Actor, error) { return s.opts.Accounts.Holder(ctx, keyID) })
}

// visitorOf returns the holder of a key as a visitor. For an ended session it returns the zero visitor.
func (s *Service) visitorOf(ctx context.Context, c claims, by appproxy.ProofKind) (visitor, error) {
	actor, err := s.holder(ctx, c.Key)
	switch {
	case fault.CodeOf(err) == fault.Unauthenticated || err == nil && actor.UserID != c.User:
		return visitor{}, nil
	case err != nil:
		return visitor{}, err
	}
	return visitor{actor: actor, by: by}, nil
}
