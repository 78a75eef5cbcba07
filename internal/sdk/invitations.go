package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// OrganizationInvitation asks a user to become a member of an organization.
type OrganizationInvitation struct {
	OrganizationID          uuid.UUID `json:"organization_id"`
	OrganizationName        string    `json:"organization_name"`
	OrganizationDisplayName string    `json:"organization_display_name"`
	UserID                  uuid.UUID `json:"user_id"`
	Username                string    `json:"username"`
	Name                    string    `json:"name"`
	InvitedBy               string    `json:"invited_by"` // a username
	CreatedAt               time.Time `json:"created_at"`
	ExpiresAt               time.Time `json:"expires_at"`
}

// InvitedResponse is the answer, with status 202, to adding a member who has to accept first.
type InvitedResponse struct {
	Response
	Invitation OrganizationInvitation `json:"invitation"`
}

// AddOrganizationMember makes a user a member without roles. Administrators of one organization can only invite: the
// invitation is not nil then, and there is no member yet.
func (c *Client) AddOrganizationMember(
	ctx context.Context, organization, user string,
) (OrganizationMember, *OrganizationInvitation, error) {
	type answer struct {
		OrganizationMember
		Invitation *OrganizationInvitation `json:"invitation"`
	}
	a, err := send[answer](ctx, c, http.MethodPost, "organizations/"+seg(organization)+"/members/"+seg(user), nil)
	return a.OrganizationMember, a.Invitation, err
}

// OrganizationInvitations lists the open invitations to an organization.
func (c *Client) OrganizationInvitations(ctx context.Context, organization string) ([]OrganizationInvitation, error) {
	return get[[]OrganizationInvitation](ctx, c, "organizations/"+seg(organization)+"/invitations")
}

// WithdrawInvitation ends a user's invitation to an organization.
func (c *Client) WithdrawInvitation(ctx context.Context, organization, user string) error {
	return c.do(ctx, http.MethodDelete, "organizations/"+seg(organization)+"/invitations/"+seg(user), nil, nil)
}

// MyInvitations lists the caller's open invitations.
func (c *Client) MyInvitations(ctx context.Context) ([]OrganizationInvitation, error) {
	return get[[]OrganizationInvitation](ctx, c, "users/me/invitations")
}

// AcceptInvitation makes the caller a member of an organization that they are invited to.
func (c *Client) AcceptInvitation(ctx context.Context, organization string) (OrganizationMember, error) {
	return send[OrganizationMember](ctx, c, http.MethodPost, "users/me/invitations/"+seg(organization)+"/accept", nil)
}

// DeclineInvitation ends an invitation of the caller.
func (c *Client) DeclineInvitation(ctx context.Context, organization string) error {
	return c.do(ctx, http.MethodPost, "users/me/invitations/"+seg(organization)+"/decline", nil, nil)
}
