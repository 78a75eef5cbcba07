package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// daemonFilter selects provisioners. An empty field does not filter.
type daemonFilter struct {
	ids      []uuid.UUID
	tags     map[string]string // that a daemon must have at least
	statuses []string
	seen     time.Time // not before this
	online   bool      // online daemons only
	limit    int       // 0: none
}

func readDaemonFilter(r *http.Request) (f daemonFilter, err error) {
	if f.ids, err = queryIDs(r, "ids"); err != nil {
		return f, err
	}
	if f.tags, err = queryTags(r); err != nil {
		return f, err
	}
	if f.limit, err = httpapi.QueryInt(r, "limit", 0, maxListed); err != nil {
		return f, err
	}
	f.statuses = queryList(r, "status")
	if r.URL.Query().Has("offline") {
		offline, err := httpapi.QueryBool(r, "offline")
		if err != nil {
			return f, err
		}
		f.online = !offline
	}
	if text := r.URL.Query().Get("max_age"); text != "" {
		age, err := time.ParseDuration(text)
		if err != nil || age < 0 {
			return f, refusedQuery("max_age", text, "must be a duration such as 1h")
		}
		f.seen = time.Now().Add(-age)
	}
	return f, nil
}

func (f daemonFilter) keeps(row dbsqlc.ProvisionerDaemon) bool {
	seen := row.CreatedAt // of a daemon that was stored and has never connected
	if row.LastSeenAt != nil {
		seen = *row.LastSeenAt
	}
	if len(f.ids) > 0 && !slices.Contains(f.ids, row.ID) || f.online && !row.Online || !row.Online &&
		seen.Before(f.seen) {
		return false
	}
	if len(f.tags) == 0 {
		return true
	}
	tags, err := decodeTags(row.Tags)
	return err == nil && len(jobtags.Lacking(f.tags, tags)) == 0
}

func refusedQuery(name, value, problem string) error {
	return fault.New(fault.Invalid, "The query parameter %s cannot be %q.", name, value).WithField(name, problem)
}

// queryList returns a comma-separated list from the query. It is never nil.
func queryList(r *http.Request, name string) []string {
	if text := r.URL.Query().Get(name); text != "" {
		return strings.Split(text, ",")
	}
	return []string{}
}

// queryIDs returns a list of ids from the query. It is never nil.
func queryIDs(r *http.Request, name string) ([]uuid.UUID, error) {
	ids := []uuid.UUID{}
	for _, text := range queryList(r, name) {
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, refusedQuery(name, text, "must be UUIDs, separated by commas")
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// queryTags returns the tags from the query, a JSON object as clients send it. It is never nil.
func queryTags(r *http.Request) (map[string]string, error) {
	tags := map[string]string{}
	text := r.URL.Query().Get("tags")
	if text == "" {
		return tags, nil
	}
	if err := json.Unmarshal([]byte(text), &tags); err != nil || tags == nil {
		return nil, refusedQuery("tags", cut(text, jobtags.MaxValue), `must be a JSON object of strings, such as {"region":"eu"}`)
	}
	return tags, jobtags.Check(tags)
}

// queryInitiator returns the user from the query, by name or id; nil for none. For a user who does not exist it returns
// uuid.Nil.
func (s *Service) queryInitiator(r *http.Request) (*uuid.UUID, error) {
	text := r.URL.Query().Get("initiator")
	if text == "" {
		return nil, nil
	}
	if text == sdk.Me {
		id := httpapi.ActorFrom(r.Context()).UserID
		return &id, nil
	}
	if id, err := uuid.Parse(text); err == nil {
		return &id, nil
	}
	user, err := s.opts.DB.GetUserByName(r.Context(), text)
	if err != nil && !database.IsNotFound(err) {
		return nil, fmt.Errorf("look up initiator: %w", err)
	}
	return &user.ID, nil
}
