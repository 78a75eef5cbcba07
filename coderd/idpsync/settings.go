package idpsync

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxField bounds the name of a claim and a filter, in bytes.
	maxField = 512
	// maxMapping bounds the entries of a mapping.
	maxMapping = 10000
)

// kind is what settings are about, as the database names it.
type kind string

const (
	ofOrganizations kind = "organization"
	ofGroups        kind = "group"
	ofRoles         kind = "role"
)

// place is whose settings a request concerns.
type place struct {
	kind  kind
	org   *uuid.UUID // nil for organization sync
	name  string
	first bool // it is the default organization
}

// place returns whose settings the path names, if the caller may change them.
func (s *Service) place(r *http.Request, k kind) (place, error) {
	actor := httpapi.ActorFrom(r.Context())
	if k == ofOrganizations {
		return place{kind: k, name: "organizations"}, actor.May(rbac.Update, rbac.Of(rbac.Deployment, uuid.Nil))
	}
	org, err := lookup.Organization(r, s.db.Queries, actor)
	if err != nil {
		return place{}, err
	}
	return place{k, &org.ID, org.Name, org.IsDefault}, actor.May(rbac.Update,
		rbac.Of(rbac.Organization, uuid.Nil).In(org.ID))
}

// settings are the three kinds of settings.
type settings interface {
	sdk.OrganizationSyncSettings | sdk.GroupSyncSettings | sdk.RoleSyncSettings
}

// initial returns the settings that hold until some are stored.
func initial[T settings](s *Service, at place) (out T) {
	switch to := any(&out).(type) {
	case *sdk.OrganizationSyncSettings:
		*to = s.initial.Organizations
	case *sdk.GroupSyncSettings:
		if at.first {
			*to = s.initial.Groups
		}
	}
	return out
}

// show serves the settings of a kind.
func show[T settings](s *Service, k kind) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		at, err := s.place(r, k)
		if err != nil {
			return err
		}
		orgs := []uuid.UUID{}
		if at.org != nil {
			orgs = append(orgs, *at.org)
		}
		rows, err := s.db.ListSyncSettings(r.Context(), orgs)
		if err != nil {
			return fmt.Errorf("read settings of sync: %w", err)
		}
		out := initial[T](s, at)
		for _, row := range rows {
			if kind(row.Kind) != k {
				continue
			}
			var stored T
			if err := json.Unmarshal(row.Settings, &stored); err != nil {
				return fmt.Errorf("decode settings of sync: %w", err)
			}
			out = stored
		}
		return httpapi.Write(w, http.StatusOK, out)
	}
}

// patch serves a change: edit applies a request of type R to the settings.
func patch[T settings, R any](s *Service, k kind, edit func(*T, R) error) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		at, err := s.place(r, k)
		if err != nil {
			return err
		}
		var req R
		if err := httpapi.Read(w, r, &req); err != nil {
			return err
		}
		ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
		var after T
		err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
			before, err := lock(ctx, q, at, initial[T](s, at))
			if err != nil {
				return err
			}
			// The maps of a copy would be the same.
			if after, err = clone(before); err != nil {
				return err
			}
			if err := edit(&after, req); err != nil {
				return err
			}
			if err := check(ctx, q, actor, at, any(before), any(after)); err != nil {
				return err
			}
			data, err := json.Marshal(after)
			if err != nil {
				return err
			}
			if err := q.UpdateSyncSettings(ctx, dbsqlc.UpdateSyncSettingsParams{
				Kind: string(k), OrganizationID: at.org, Settings: data,
			}); err != nil {
				return err
			}
			return audit.Record(ctx, q, entry(at, any(before), any(after)))
		})
		if err != nil {
			return fmt.Errorf("change settings of sync: %w", err)
		}
		s.log.InfoContext(ctx, "settings of sync changed", "user", actor.Username, "kind", k, "organization", at.name)
		return httpapi.Write(w, http.StatusOK, after)
	}
}

// lock returns the stored settings, which no other transaction changes until this one ends. If there are none, it
// stores the given ones.
func lock[T settings](ctx context.Context, q *dbsqlc.Queries, at place, none T) (out T, err error) {
	if at.org != nil {
		if _, err := q.HoldOrganization(ctx, *at.org); err != nil {
			return out, lookup.Fault(err, rbac.Organization, "hold organization")
		}
	}
	data, err := json.Marshal(none)
	if err != nil {
		return out, err
	}
	if err := q.InsertSyncSettingsOnce(ctx, dbsqlc.InsertSyncSettingsOnceParams{
		Kind: string(at.kind), OrganizationID: at.org, Settings: data,
	}); err != nil {
		return out, err
	}
	if data, err = q.LockSyncSettings(ctx, dbsqlc.LockSyncSettingsParams{
		Kind: string(at.kind), OrganizationID: at.org,
	}); err != nil {
		return out, err
	}
	return out, json.Unmarshal(data, &out)
}

func clone[T settings](v T) (out T, err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(data, &out)
}

// replace is the edit of a request that contains all settings.
func replace[T settings](to *T, req T) error {
	*to = req
	return nil
}

// remap changes a mapping. parse reads what a text of the claim gets.
func remap[V comparable](
	to *sdk.Map[sdk.List[V]], req sdk.PatchSyncMappingRequest, parse func(string) (V, error),
) error {
	if *to == nil {
		*to = sdk.Map[sdk.List[V]]{}
	}
	for i, changes := range []sdk.List[sdk.SyncMapping]{req.Add, req.Remove} {
		for _, c := range changes {
			v, err := parse(c.Gets)
			if err != nil {
				return fault.New(fault.Invalid, "The mapping is not valid.").
					WithField([]string{"add", "remove"}[i], fmt.Sprintf("gets %.64q, which is not an id", c.Gets))
			}
			list := slices.DeleteFunc((*to)[c.Given], func(old V) bool { return old == v })
			if i == 0 {
				list = append(list, v)
			}
			if (*to)[c.Given] = list; len(list) == 0 {
				delete(*to, c.Given)
			}
		}
	}
	return nil
}

func asText(text string) (string, error) { return text, nil }

// check returns a fault unless settings are valid, and the actor may give what a mapping newly gives.
func check(ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, at place, before, after any) error {
	switch now := after.(type) {
	case sdk.OrganizationSyncSettings:
		added, err := checkMapping(now.Field, before.(sdk.OrganizationSyncSettings).Mapping, now.Mapping)
		if err != nil {
			return err
		}
		return holdOrganizations(ctx, q, added)
	case sdk.GroupSyncSettings:
		added, err := checkMapping(now.Field, before.(sdk.GroupSyncSettings).Mapping, now.Mapping)
		if err != nil {
			return err
		}
		if err := checkFilter(now); err != nil {
			return err
		}
		if err := holdGroups(ctx, q, at, added); err != nil {
			return err
		}
		// Another claim, filter or mapping puts others into any group, by its name too.
		return lookup.MayFill(ctx, q, actor, *at.org, nil)
	case sdk.RoleSyncSettings:
		if _, err := checkMapping(now.Field, before.(sdk.RoleSyncSettings).Mapping, now.Mapping); err != nil {
			return err
		}
		return mayMap(ctx, q, actor, *at.org, before.(sdk.RoleSyncSettings), now)
	}
	return fmt.Errorf("settings of the unknown type %T", after)
}

// checkMapping checks what all settings have, and returns the values that the new mapping has and the old one has not.
func checkMapping[V comparable](field string, before, after sdk.Map[sdk.List[V]]) ([]V, error) {
	f := fault.New(fault.Invalid, "The settings are not valid.")
	if len(field) > maxField || strings.TrimSpace(field) != field || strings.ContainsFunc(field, unicode.IsControl) {
		f.WithField("field", fmt.Sprintf("must be the name of a claim, of at most %d bytes", maxField))
	}
	entries := 0
	known, added := map[V]bool{}, []V{}
	for _, list := range before {
		for _, v := range list {
			known[v] = true
		}
	}
	for text, list := range after {
		if text == "" || len(text) > maxValue {
			f.WithField("mapping", fmt.Sprintf("must have texts of 1 to %d bytes", maxValue))
			break
		}
		entries += len(list)
		for _, v := range list {
			if !known[v] {
				known[v] = true
				added = append(added, v)
			}
		}
	}
	if len(after) > maxMapping || entries > maxMapping {
		f.WithField("mapping", fmt.Sprintf("must have at most %d entries", maxMapping))
	}
	if len(f.Fields) > 0 {
		return nil, f
	}
	return added, nil
}

func checkFilter(set sdk.GroupSyncSettings) error {
	f := fault.New(fault.Invalid, "The settings are not valid.")
	if set.RegexFilter != nil {
		if len(*set.RegexFilter) > maxField {
			f.WithField("regex_filter", fmt.Sprintf("must have at most %d bytes", maxField))
		} else if _, err := regexp.Compile(*set.RegexFilter); err != nil {
			f.WithField("regex_filter", fmt.Sprintf("must be a regular expression of RE2: %v", err))
		}
	}
	if len(set.LegacyNameMapping) > maxMapping {
		f.WithField("legacy_group_name_mapping", fmt.Sprintf("must have at most %d entries", maxMapping))
	}
	if len(f.Fields) > 0 {
		return f
	}
	return nil
}

func holdOrganizations(ctx context.Context, q *dbsqlc.Queries, ids []uuid.UUID) error {
	for _, id := range sorted(ids) {
		if _, err := q.HoldOrganization(ctx, id); err != nil {
			if f := fault.As(lookup.Fault(err, rbac.Organization, "hold organization")); f != nil &&
				f.Code == fault.NotFound {
				return fault.New(fault.Invalid, "The organization %s does not exist.", id).
					WithField("mapping", "must name organizations")
			}
			return err
		}
	}
	return nil
}

// holdGroups returns a fault unless the groups belong to the organization, and sync may change their members.
func holdGroups(ctx context.Context, q *dbsqlc.Queries, at place, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	known, err := q.ListSyncGroups(ctx,
		dbsqlc.ListSyncGroupsParams{Organizations: []uuid.UUID{*at.org}, Ids: ids, Names: []string{}})
	if err != nil {
		return err
	}
	for _, id := range ids {
		i := slices.IndexFunc(known, func(g dbsqlc.ListSyncGroupsRow) bool { return g.ID == id })
		switch {
		case id == *at.org:
			return fault.New(fault.Invalid, "The group %s always contains all members of the organization.",
				sdk.Everyone).WithField("mapping", "must not name it")
		case i < 0:
			return fault.New(fault.Invalid, "The group %s does not exist in %s.", id, at.name).
				WithField("mapping", "must name groups of the organization")
		case known[i].Provisioned:
			return fault.New(fault.Invalid, "SCIM decides about the members of the group %s.", known[i].Name).
				WithField("mapping", "must not name groups that SCIM provisions")
		}
	}
	return nil
}

// mayMap returns a fault unless the roles exist that a mapping newly gives, and the actor may give them and those that
// it no longer gives. Another claim gives all of them to others than before.
func mayMap(
	ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, org uuid.UUID, before, after sdk.RoleSyncSettings,
) error {
	known := beyond(before, sdk.RoleSyncSettings{})
	for _, role := range append(beyond(after, before), beyond(before, after)...) {
		err := lookup.MayGive(ctx, q, actor, org, []string{role}, "mapping")
		// A role that was mapped before, and has been deleted since, gives nothing.
		if err != nil && (fault.CodeOf(err) != fault.Invalid || !slices.Contains(known, role)) {
			return err
		}
	}
	return nil
}

// beyond returns the roles that one set of settings gives and another does not.
func beyond(settings, others sdk.RoleSyncSettings) []string {
	out := []string{}
	for text, roles := range settings.Mapping {
		for _, role := range roles {
			if settings.Field != others.Field || !slices.Contains(others.Mapping[text], role) {
				out = append(out, role)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// entry returns the audit entry of a change.
func entry(at place, before, after any) audit.Entry {
	e := audit.Entry{Name: at.name, Diff: audit.Diff{}}
	if at.org != nil {
		e.ID, e.Organization = *at.org, *at.org
	}
	field := func(name string, a, b any) { e.Diff.Field(name, a, b) }
	switch now := after.(type) {
	case sdk.OrganizationSyncSettings:
		was := before.(sdk.OrganizationSyncSettings)
		field("field", was.Field, now.Field)
		field("mapping", shown(was.Mapping), shown(now.Mapping))
		field("organization_assign_default", was.AssignDefault, now.AssignDefault)
	case sdk.GroupSyncSettings:
		was := before.(sdk.GroupSyncSettings)
		field("field", was.Field, now.Field)
		field("mapping", shown(was.Mapping), shown(now.Mapping))
		field("regex_filter", was.RegexFilter, now.RegexFilter)
		field("auto_create_missing_groups", was.AutoCreate, now.AutoCreate)
		field("legacy_group_name_mapping", shown(was.LegacyNameMapping), shown(now.LegacyNameMapping))
	case sdk.RoleSyncSettings:
		was := before.(sdk.RoleSyncSettings)
		field("field", was.Field, now.Field)
		field("mapping", shown(was.Mapping), shown(now.Mapping))
	}
	return e
}

// shown returns a mapping as the audit log shows it.
func shown[V any](m sdk.Map[V]) string {
	if len(m) == 0 {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
