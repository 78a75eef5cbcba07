package users

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	applicationName = "codermesh" // until an owner chooses another
	bannerColor     = "#4353c9"   // of banners without a color

	maxApplicationName = 64
	maxLogoURL         = 256
	maxBanners         = 5
	maxBanner          = 1000 // bytes
)

var (
	// Pages load no image from another host, so a logo is one of the server's own: never "//host" or a scheme.
	logoPath = lazyregexp.New(`^/[A-Za-z0-9_-][A-Za-z0-9_./-]*$`)
	rgb      = lazyregexp.New(`^#[0-9a-fA-F]{6}$`)
)

// appearance serves how the deployment presents itself, to visitors too: the sign-in page shows it.
func (s *Service) appearance(w http.ResponseWriter, r *http.Request) error {
	stored, err := storedAppearance(r.Context(), s.db.Queries)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, s.present(stored))
}

// docsURL is where users find the documentation: by default, on this server.
func (s *Service) docsURL() string {
	if s.presentation.DocsURL != "" {
		return s.presentation.DocsURL
	}
	if s.accessURL == nil {
		return sdk.ProjectURL + "/tree/main/docs"
	}
	return s.accessURL.JoinPath("docs").String()
}

// storedAppearance returns what an owner has chosen; the zero value if nothing.
func storedAppearance(ctx context.Context, q *dbsqlc.Queries) (sdk.UpdateAppearanceRequest, error) {
	var stored sdk.UpdateAppearanceRequest
	text, err := q.GetSetting(ctx, "appearance")
	if database.IsNotFound(err) {
		return stored, nil
	}
	if err != nil {
		return stored, fmt.Errorf("read appearance: %w", err)
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return stored, fmt.Errorf("decode appearance: %w", err)
	}
	return stored, nil
}

// present returns the appearance. Clients append the paths of pages to DocsURL, which this server leads to its own.
func (s *Service) present(stored sdk.UpdateAppearanceRequest) sdk.Appearance {
	out := sdk.Appearance{
		ApplicationName: stored.ApplicationName, LogoURL: stored.LogoURL, DocsURL: s.docsURL(),
		AnnouncementBanners: stored.AnnouncementBanners,
		SupportLinks:        s.presentation.SupportLinks,
	}
	if out.ApplicationName == "" {
		out.ApplicationName = applicationName
	}
	for _, banner := range stored.AnnouncementBanners {
		if banner.Enabled {
			out.ServiceBanner = banner // for clients that know one banner only
			break
		}
	}
	return out
}

// setAppearance replaces the whole appearance.
func (s *Service) setAppearance(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	var req sdk.UpdateAppearanceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkAppearance(&req); err != nil {
		return err
	}
	text, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode appearance: %w", err)
	}
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		// Two owners may save at the same time: each audited difference is from what was stored before it.
		if err := q.InsertSettingOnce(ctx, dbsqlc.InsertSettingOnceParams{Key: "appearance", Value: []byte("{}")}); err != nil {
			return err
		}
		if err := q.LockSetting(ctx, "appearance"); err != nil {
			return err
		}
		before, err := storedAppearance(ctx, q)
		if err != nil {
			return err
		}
		if err := q.UpdateSetting(ctx, dbsqlc.UpdateSettingParams{Key: "appearance", Value: text}); err != nil {
			return err
		}
		diff := audit.Diff{}.Field("application_name", before.ApplicationName, req.ApplicationName).Field("logo_url", before.LogoURL, req.LogoURL).
			Field("announcement_banners", before.AnnouncementBanners, req.AnnouncementBanners)
		return audit.Record(ctx, q, audit.Entry{Name: "appearance", Diff: diff})
	})
	if err != nil {
		return fmt.Errorf("store appearance: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, s.present(req))
}

// checkAppearance refuses what pages could not show, or what could disguise them.
func checkAppearance(req *sdk.UpdateAppearanceRequest) error {
	refuse := func(field, detail string) error {
		return fault.New(fault.Invalid, "The appearance is invalid.").WithField(field, detail)
	}
	if req.ApplicationName = strings.TrimSpace(req.ApplicationName); len(req.ApplicationName) > maxApplicationName ||
		strings.ContainsFunc(req.ApplicationName, httpapi.Hidden) {
		return refuse("application_name", fmt.Sprintf("must be one line of at most %d bytes", maxApplicationName))
	}
	if req.LogoURL != "" && (len(req.LogoURL) > maxLogoURL || !logoPath().MatchString(req.LogoURL)) {
		return refuse("logo_url", "must be a path on this server, such as /icon/docker.svg or /emojis/1f680.png; images of other hosts are blocked")
	}
	// The one banner of older clients takes the place of all.
	if req.ServiceBanner != nil && req.AnnouncementBanners == nil {
		req.AnnouncementBanners = []sdk.Banner{*req.ServiceBanner}
	}
	req.ServiceBanner = nil
	if len(req.AnnouncementBanners) > maxBanners {
		return refuse("announcement_banners", fmt.Sprintf("can be %d at most", maxBanners))
	}
	for i := range req.AnnouncementBanners {
		b := &req.AnnouncementBanners[i]
		if b.Message = strings.TrimSpace(b.Message); len(b.Message) > maxBanner ||
			strings.ContainsFunc(b.Message, httpapi.Hidden) {
			return refuse("announcement_banners",
				fmt.Sprintf("each message must be one line of at most %d bytes", maxBanner))
		}
		if b.Enabled && b.Message == "" {
			return refuse("announcement_banners", "an enabled banner needs a message")
		}
		if b.BackgroundColor == "" {
			b.BackgroundColor = bannerColor
		}
		if !rgb().MatchString(b.BackgroundColor) {
			return refuse("announcement_banners", "a background_color must be such as #004852")
		}
	}
	return nil
}
