package users

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Bounds on preferences.
const (
	maxColumns      = 20
	maxSearches     = 50
	maxSearchName   = 64   // letters
	maxSearchLength = 1000 // bytes
)

// searched are the pages whose searches have names; "" is the list of workspaces.
var searched = []string{"", "users", "audit", "connectionlog"}

// columnName is the form of a column's name. Which columns exist is the dashboard's matter.
var columnName = lazyregexp.New(`^[a-z_]{1,32}$`)

func (s *Service) getPreferences(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	text, err := s.db.GetUserPreferences(r.Context(), user.ID)
	if err != nil && !database.IsNotFound(err) {
		return fmt.Errorf("read preferences: %w", err)
	}
	preferences, err := decodePreferences(text)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, preferences)
}

// setPreferences changes the preferences that the request names, and keeps the others.
func (s *Service) setPreferences(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserPreferencesRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := checkPreferences(req); err != nil {
		return err
	}
	var after sdk.UserPreferences
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		text, err := q.LockUserPreferences(r.Context(), user.ID)
		if err != nil {
			return err
		}
		before, err := decodePreferences(text)
		if err != nil {
			return err
		}
		after = req.Apply(before)
		if text, err = json.Marshal(after); err != nil {
			return err
		}
		if err := q.SetUserPreferences(r.Context(), dbsqlc.SetUserPreferencesParams{
			UserID: user.ID, Preferences: text,
		}); err != nil {
			return err
		}
		entry := audit.OfUser(user, user)
		entry.Diff = entry.Diff.Field("preferences", before, after)
		return audit.Record(r.Context(), q, entry)
	})
	if err != nil {
		return fmt.Errorf("store preferences: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, after)
}

func decodePreferences(text []byte) (p sdk.UserPreferences, err error) {
	if len(text) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("decode preferences: %w", err)
	}
	return p, nil
}

func checkPreferences(req sdk.UpdateUserPreferencesRequest) error {
	f := fault.New(fault.Invalid, "The preferences cannot be changed.")
	if req.WorkspaceColumns != nil {
		if len(*req.WorkspaceColumns) > maxColumns {
			f = f.WithField("workspace_columns", fmt.Sprintf("must have at most %d entries", maxColumns))
		}
		for _, name := range *req.WorkspaceColumns {
			if !columnName().MatchString(name) {
				f = f.WithField("workspace_columns", "must be names of columns")
				break
			}
		}
	}
	if req.SavedSearches != nil {
		if problem := checkSearches(*req.SavedSearches); problem != "" {
			f = f.WithField("saved_searches", problem)
		}
	}
	if len(f.Fields) > 0 {
		return f
	}
	return nil
}

// checkSearches returns what is wrong with saved searches.
func checkSearches(searches []sdk.SavedSearch) string {
	if len(searches) > maxSearches {
		return fmt.Sprintf("must have at most %d entries", maxSearches)
	}
	names := map[[2]string]bool{}
	for _, search := range searches {
		name := [2]string{search.Page, search.Name}
		switch {
		case !slices.Contains(searched, search.Page):
			return fmt.Sprintf("have the unknown page %q", search.Page)
		case strings.TrimSpace(search.Name) == "" || utf8.RuneCountInString(search.Name) > maxSearchName:
			return fmt.Sprintf("need names of 1 to %d letters", maxSearchName)
		case len(search.Query) > maxSearchLength:
			return fmt.Sprintf("must have at most %d bytes each", maxSearchLength)
		case !utf8.ValidString(search.Name+search.Query) || strings.ContainsFunc(search.Name+search.Query, unicode.IsControl):
			return "cannot contain control characters"
		case names[name]:
			return fmt.Sprintf("the name %q exists already", search.Name)
		}
		names[name] = true
	}
	return ""
}
