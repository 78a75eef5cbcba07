package users

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// What a user can choose; empty is allowed too.
var (
	themes = []sdk.Theme{sdk.ThemeAuto, sdk.ThemeLight, sdk.ThemeDark}
	fonts  = []sdk.TerminalFont{sdk.FontFiraCode, sdk.FontIBMPlexMono, sdk.FontJetBrainsMono, sdk.FontSourceCodePro}
)

// getUserAppearance answers with the look that a user has chosen for the dashboard.
func (s *Service) getUserAppearance(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	row, err := s.db.GetUserAppearance(r.Context(), user.ID)
	if err != nil && !database.IsNotFound(err) {
		return fmt.Errorf("read a user's appearance: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.UserAppearance{
		ThemePreference: sdk.Theme(row.Theme), TerminalFont: sdk.TerminalFont(row.TerminalFont),
	})
}

// setUserAppearance changes what the request names, and keeps the rest.
func (s *Service) setUserAppearance(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserAppearanceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkLook(req); err != nil {
		return err
	}
	var after dbsqlc.SetUserAppearanceRow
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, err := q.LockUserAppearance(r.Context(), user.ID)
		if err != nil {
			return err
		}
		if after, err = q.SetUserAppearance(r.Context(), dbsqlc.SetUserAppearanceParams{
			UserID: user.ID, Theme: (*string)(req.ThemePreference), TerminalFont: (*string)(req.TerminalFont),
		}); err != nil {
			return err
		}
		entry := audit.OfUser(user, user)
		entry.Diff = entry.Diff.Field("theme_preference", before.Theme, after.Theme).Field("terminal_font",
			before.TerminalFont, after.TerminalFont)
		return audit.Record(r.Context(), q, entry)
	})
	if err != nil {
		return fmt.Errorf("store a user's appearance: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.UserAppearance{
		ThemePreference: sdk.Theme(after.Theme), TerminalFont: sdk.TerminalFont(after.TerminalFont),
	})
}

func checkLook(req sdk.UpdateUserAppearanceRequest) error {
	f := fault.New(fault.Invalid, "The appearance cannot be changed.")
	if t := req.ThemePreference; t != nil && *t != sdk.ThemeUnset && !slices.Contains(themes, *t) {
		f = f.WithField("theme_preference", "must be empty or "+choices(themes))
	}
	if t := req.TerminalFont; t != nil && *t != sdk.FontDefault && !slices.Contains(fonts, *t) {
		f = f.WithField("terminal_font", "must be empty or "+choices(fonts))
	}
	if len(f.Fields) > 0 {
		return f
	}
	return nil
}

// choices joins values: "a, b or c".
func choices[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}
