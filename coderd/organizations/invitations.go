package organizations

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// invitationLifetime is how long an invitation can be accepted.
const invitationLifetime = 30 * 24 * time.Hour

// invite asks a user to become a member, and answers 202: the administrators of an organization cannot make users
// members against their will, because they could then start workspaces in the members' names.
func (s *Service) invite(w http.ResponseWriter, r *http.Request, org dbsqlc.Organization, user dbsqlc.User) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	var invitation dbsqlc.OrganizationInvitation
	err := s.db.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if _, err := q.HoldUser(ctx, user.ID); err != nil {
			return lookup.Fault(err, rbac.User, "hold user")
		}
		if _, err := q.HoldOrganization(ctx, org.ID); err != nil {
			return lookup.Fault(err, rbac.Organization, "hold organization")
		}
		if err := q.EndInvitations(ctx, dbsqlc.EndInvitationsParams{OrganizationID: org.ID}); err != nil {
			return fmt.Errorf("delete expired invitations: %w", err)
		}
		_, err = q.GetOrganizationMember(ctx, dbsqlc.GetOrganizationMemberParams{
			OrganizationID: org.ID, UserID: user.ID,
		})
		switch {
		case err == nil:
			return alreadyMember(user, org)
		case !database.IsNotFound(err):
			return err
		}
		invitation, err = q.InviteToOrganization(ctx, dbsqlc.InviteToOrganizationParams{
			OrganizationID: org.ID, UserID: user.ID, InvitedBy: actor.UserID,
			ExpiresAt: time.Now().Add(invitationLifetime),
		})
		if database.IsNotFound(err) {
			return fault.New(fault.Conflict, "%s is already invited to %s.", user.Username, org.Name).
				WithDetail("They become a member when they accept the invitation.")
		}
		if err != nil {
			return err
		}
		if err := audit.Record(ctx, q, ofInvitation(audit.Create, org, user, "", "open")); err != nil {
			return err
		}
		return s.notifications.Record(ctx, q, notifications.Event{
			Template: notifications.OrganizationInvitation, To: []uuid.UUID{user.ID}, Targets: []uuid.UUID{org.ID},
			Labels: map[string]string{
				"organization": org.Name, "initiator": actor.Username,
				"expires": invitation.ExpiresAt.UTC().Format(time.DateOnly),
			},
		})
	})
	if err != nil {
		return fmt.Errorf("invite user: %w", err)
	}
	s.log.Info("user invited", "user", actor.Username, "organization", org.Name, "member", user.Username)
	return httpapi.Write(w, http.StatusAccepted, sdk.InvitedResponse{
		Response: sdk.Response{
			Message: fmt.Sprintf("%s is invited to %s, and becomes a member by accepting.", user.Username, org.Name),
			Detail: fmt.Sprintf("They accept in the dashboard or with: coder organizations invitations accept %s",
				shell.POSIX(org.Name)),
		},
		Invitation: toInvitation(dbsqlc.ListInvitationsRow{
			OrganizationInvitation: invitation, Organization: org, Username: user.Username, Name: user.Name,
			Inviter: actor.Username,
		}),
	})
}

func alreadyMember(user dbsqlc.User, org dbsqlc.Organization) error {
	return fault.New(fault.Conflict, "%s is already a member of %s.", user.Username, org.Name)
}

// ofInvitation returns the audit entry of a change of an invitation. Its object is the invited user.
func ofInvitation(action audit.Action, org dbsqlc.Organization, user dbsqlc.User, before, after string) audit.Entry {
	e := audit.Entry{Action: action, Kind: audit.OrganizationInvitation, ID: user.ID, Name: user.Username, Organization: org.ID, Diff: audit.Diff{}}
	e.Diff.Field("invitation", before, after)
	return e
}

func toInvitation(row dbsqlc.ListInvitationsRow) sdk.OrganizationInvitation {
	i, o := row.OrganizationInvitation, row.Organization
	return sdk.OrganizationInvitation{
		OrganizationID: o.ID, OrganizationName: o.Name, OrganizationDisplayName: o.DisplayName, UserID: i.UserID,
		Username: row.Username, Name: row.Name,
		InvitedBy: row.Inviter, CreatedAt: i.CreatedAt, ExpiresAt: i.ExpiresAt,
	}
}

func (s *Service) writeInvitations(w http.ResponseWriter, r *http.Request, p dbsqlc.ListInvitationsParams) error {
	rows, err := s.db.ListInvitations(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list invitations: %w", err)
	}
	out := sdk.List[sdk.OrganizationInvitation]{}
	for _, row := range rows {
		out = append(out, toInvitation(row))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// listInvitations lists the open invitations to an organization, for those who may invite.
func (s *Service) listInvitations(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Create, rbac.OrganizationMember)
	if err != nil {
		return err
	}
	return s.writeInvitations(w, r, dbsqlc.ListInvitationsParams{OrganizationID: &org.ID})
}

// withdrawInvitation ends an invitation, for those who may invite.
func (s *Service) withdrawInvitation(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Create, rbac.OrganizationMember)
	if err != nil {
		return err
	}
	ctx := r.Context()
	user, err := s.users.Find(ctx, httpapi.ActorFrom(ctx), r.PathValue("user"))
	if err != nil {
		return notInvited(err)
	}
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if _, err := q.TakeInvitation(ctx, dbsqlc.TakeInvitationParams{
			OrganizationID: org.ID, UserID: user.ID,
		}); err != nil {
			return lookup.Fault(err, rbac.OrganizationInvitation, "take invitation")
		}
		return audit.Record(ctx, q, ofInvitation(audit.Delete, org, user, "open", "withdrawn"))
	})
	if err != nil {
		return fmt.Errorf("withdraw invitation: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// notInvited answers about unknown users as about users who are not invited.
func notInvited(err error) error {
	if fault.CodeOf(err) == fault.NotFound {
		return rbac.NotFound(rbac.OrganizationInvitation)
	}
	return err
}

// listOwnInvitations lists the open invitations of the user in the path.
func (s *Service) listOwnInvitations(w http.ResponseWriter, r *http.Request) error {
	user, err := s.users.Target(r, rbac.Read, rbac.OrganizationInvitation)
	if err != nil {
		return err
	}
	return s.writeInvitations(w, r, dbsqlc.ListInvitationsParams{UserID: &user.ID})
}

// answerInvitation serves the invited user's answer. Only the invited user can answer, and not with a workspace's
// token.
func (s *Service) answerInvitation(accept bool) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		user, err := s.users.Target(r, rbac.Update, rbac.OrganizationInvitation)
		if err != nil {
			return err
		}
		ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
		org, err := s.db.GetOrganizationByReference(ctx, r.PathValue("organization"))
		if err != nil {
			return lookup.Fault(err, rbac.OrganizationInvitation, "look up organization")
		}
		var m dbsqlc.OrganizationMember
		err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
			invitation, err := q.TakeInvitation(ctx, dbsqlc.TakeInvitationParams{
				OrganizationID: org.ID, UserID: user.ID,
			})
			if err != nil {
				return lookup.Fault(err, rbac.OrganizationInvitation, "take invitation")
			}
			answer := "declined"
			if accept {
				answer = "accepted"
				if m, err = addTo(ctx, q, org, user); err != nil {
					return err
				}
			}
			if err := audit.Record(ctx, q, ofInvitation(audit.Write, org, user, "open", answer)); err != nil {
				return err
			}
			return s.notifications.Record(ctx, q, notifications.Event{
				Template: notifications.OrganizationInvitationAnswered, To: []uuid.UUID{invitation.InvitedBy},
				Targets: []uuid.UUID{org.ID},
				Labels:  map[string]string{"organization": org.Name, "account": user.Username, "answer": answer},
			})
		})
		if err != nil {
			return fmt.Errorf("answer invitation: %w", err)
		}
		if !accept {
			s.log.Info("invitation declined", "user", actor.Username, "organization", org.Name)
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		s.log.Info("member added", "user", actor.Username, "organization", org.Name, "member", user.Username)
		return httpapi.Write(w, http.StatusOK, toMember(actor, user, m))
	}
}

// addTo makes a user a member, and records it.
func addTo(
	ctx context.Context, q *dbsqlc.Queries, org dbsqlc.Organization, user dbsqlc.User,
) (dbsqlc.OrganizationMember, error) {
	if _, err := q.HoldUser(ctx, user.ID); err != nil {
		return dbsqlc.OrganizationMember{}, lookup.Fault(err, rbac.User, "hold user")
	}
	if _, err := q.HoldOrganization(ctx, org.ID); err != nil {
		return dbsqlc.OrganizationMember{}, lookup.Fault(err, rbac.Organization, "hold organization")
	}
	m, err := q.InsertOrganizationMember(ctx,
		dbsqlc.InsertOrganizationMemberParams{OrganizationID: org.ID, UserID: user.ID, Roles: []string{}})
	if database.IsNotFound(err) {
		return m, alreadyMember(user, org)
	}
	if err != nil {
		return m, err
	}
	e := audit.OfMember(user, dbsqlc.OrganizationMember{}, m)
	e.Action = audit.Create // also where the route declares what becomes of an invitation
	return m, audit.Record(ctx, q, e)
}
