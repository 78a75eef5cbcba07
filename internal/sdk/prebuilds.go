package sdk

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// PrebuildsOwner is the name of the account that owns prebuilt workspaces until a user claims them.
const PrebuildsOwner = "prebuilds"

// PrebuildsOwnerID is the id of the account PrebuildsOwner. No one can sign in to it. A migration of the database has
// the id, too.
var PrebuildsOwnerID = uuid.MustParse("9a4e6c1e-52d0-4c7b-8f1e-3d2b6a70c5f1")

// PrebuildsSettings are the deployment's settings of prebuilt workspaces.
type PrebuildsSettings struct {
	// ReconciliationPaused means that the server neither creates nor deletes prebuilt workspaces. Users still get those
	// that exist.
	ReconciliationPaused bool `json:"reconciliation_paused"`
}

// TemplatePrebuilds describes the prebuilt workspaces of one preset of a template's active version.
type TemplatePrebuilds struct {
	PresetID   uuid.UUID `json:"preset_id"`
	PresetName string    `json:"preset_name"`
	Desired    int       `json:"desired"`
	Running    int       `json:"running"`  // started
	Eligible   int       `json:"eligible"` // started, with agents that are ready for a user
	// Explanation is a sentence about what keeps the server from having the desired ones; "" for nothing.
	Explanation string `json:"explanation"`
	// Claims says what a claim of the last one that started waits for; "" if that is not known.
	Claims PrebuildClaims `json:"claims,omitempty"`
	// ClaimWaits are the reasons for ClaimsWait, for the template's author. Most begin with a place in the template.
	ClaimWaits []string `json:"claim_waits"`
}

// InvalidatedPrebuilds lists the presets whose prebuilt workspaces are replaced.
type InvalidatedPrebuilds struct {
	Invalidated List[InvalidatedPreset] `json:"invalidated"`
}

// InvalidatedPreset is a preset of a template's active version.
type InvalidatedPreset struct {
	TemplateName        string `json:"template_name"`
	TemplateVersionName string `json:"template_version_name"`
	PresetName          string `json:"preset_name"`
}

// PrebuildClaims says what users wait for who claim a prebuilt workspace.
type PrebuildClaims string

// What users wait for: nothing, or the claim's build.
const (
	ClaimsInstant PrebuildClaims = "instant"
	ClaimsWait    PrebuildClaims = "wait"
)

func (c *Client) PrebuildsSettings(ctx context.Context) (PrebuildsSettings, error) {
	return get[PrebuildsSettings](ctx, c, "prebuilds/settings")
}

func (c *Client) UpdatePrebuildsSettings(ctx context.Context, s PrebuildsSettings) error {
	return c.do(ctx, http.MethodPut, "prebuilds/settings", s, nil)
}

// InvalidatePrebuilds has all prebuilt workspaces of a template replaced.
func (c *Client) InvalidatePrebuilds(ctx context.Context, template uuid.UUID) (InvalidatedPrebuilds, error) {
	return send[InvalidatedPrebuilds](ctx, c, http.MethodPost, "templates/"+template.String()+"/prebuilds/invalidate",
		nil)
}

func (c *Client) TemplatePrebuilds(ctx context.Context, template uuid.UUID) ([]TemplatePrebuilds, error) {
	return get[[]TemplatePrebuilds](ctx, c, "templates/"+template.String()+"/prebuilds")
}
