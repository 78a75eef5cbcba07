package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// TemplateConsent is a user's consent that workspaces of a template get the user's credentials.
type TemplateConsent struct {
	CreatedAt           time.Time `json:"created_at"`
	TemplateID          uuid.UUID `json:"template_id"`
	TemplateName        string    `json:"template_name"`
	TemplateDisplayName string    `json:"template_display_name"`
	TemplateIcon        string    `json:"template_icon"`
	OrganizationID      uuid.UUID `json:"organization_id"`
	OrganizationName    string    `json:"organization_name"`
}

// TemplateConsents lists a user's consents by the templates' names.
func (c *Client) TemplateConsents(ctx context.Context, user string) ([]TemplateConsent, error) {
	return get[[]TemplateConsent](ctx, c, "users/"+seg(user)+"/template-consents")
}

// RevokeTemplateConsent ends a user's consent to a template. Builds, agents and sessions of its workspaces lose the
// user's credentials.
func (c *Client) RevokeTemplateConsent(ctx context.Context, user string, template uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user)+"/template-consents/"+template.String(), nil, nil)
}
