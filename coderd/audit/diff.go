package audit

import (
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Diff holds the fields that changed.
type Diff map[string]sdk.AuditDiffField

// maxValue bounds a text in a difference, in bytes.
const maxValue = 2048

// Field adds a field, unless its values are equal.
func (d Diff) Field(name string, before, after any) Diff {
	if !reflect.DeepEqual(before, after) {
		d[name] = sdk.AuditDiffField{Old: value(before), New: value(after)}
	}
	return d
}

// Secret adds a field that changed and whose values must not be stored.
func (d Diff) Secret(name string) Diff {
	d[name] = sdk.AuditDiffField{Old: "", New: "", Secret: true}
	return d
}

// secrets are words in the names of fields whose values are never stored. Fields of bytes are not stored either: they
// are hashes, encrypted texts or archives.
var secrets = []string{"password", "secret", "hash", "private", "sealed", "token", "credential"}

// passing are fields that tell nothing about a change: ids, times of use, and what a workspace's row repeats of its
// builds.
var passing = map[string]bool{
	"id": true, "created_at": true, "updated_at": true, "last_used_at": true, "last_seen_at": true, "latest_build_id": true,
	"latest_build_number": true, "latest_version_id": true, "latest_transition": true, "latest_reason": true, "latest_status": true,
	"latest_ended_at": true, "autostop_tries": true, "autostop_after": true,
}

// Compare returns the fields in which two rows of one table differ. The zero value stands for a row that does not
// exist. A field whose name or type suggests a secret is reported as changed, without its values.
func Compare[Row any](before, after Row) Diff {
	d := Diff{}
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range a.NumField() {
		name := snake(a.Type().Field(i).Name)
		old, now := a.Field(i).Interface(), b.Field(i).Interface()
		if passing[name] || equal(old, now) {
			continue
		}
		if _, bytes := old.([]byte); bytes || isSecret(name) {
			d.Secret(name)
			continue
		}
		d[name] = sdk.AuditDiffField{Old: value(old), New: value(now)}
	}
	return d
}

func isSecret(name string) bool {
	for _, word := range secrets {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func equal(a, b any) bool {
	at, aok := value(a).(time.Time)
	bt, bok := value(b).(time.Time)
	if aok && bok {
		return at.Equal(bt)
	}
	return reflect.DeepEqual(a, b)
}

// value returns what a difference stores of a value: no pointer, and no long text.
func value(v any) any {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer {
		if r.IsNil() {
			return nil
		}
		v = r.Elem().Interface()
	}
	if text, ok := v.(string); ok {
		if text = database.Visible(text); len(text) > maxValue {
			text = database.Visible(text[:maxValue]) + "…"
		}
		return text
	}
	return v
}

// snake returns a Go field's name as its column is called.
func snake(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// The following return the entry of a change. For an object that is created, before is zero; for one that is deleted,
// after is.

// OfUser returns the entry of a change of an account.
func OfUser(before, after dbsqlc.User) Entry {
	return Entry{
		Kind: User, ID: either(before.ID, after.ID), Name: named(before.Username, after.Username),
		Diff: Compare(before, after),
	}
}

// OfOrganization returns the entry of a change of an organization. It belongs to itself, so that its auditors read it.
func OfOrganization(before, after dbsqlc.Organization) Entry {
	id := either(before.ID, after.ID)
	return Entry{
		Kind: Organization, ID: id, Name: named(before.Name, after.Name), Organization: id,
		Diff: Compare(before, after),
	}
}

// OfMember returns the entry of a change of a user's membership in an organization. Its object is the user.
func OfMember(user dbsqlc.User, before, after dbsqlc.OrganizationMember) Entry {
	return Entry{
		Kind: OrganizationMember, ID: user.ID, Name: user.Username,
		Organization: either(before.OrganizationID, after.OrganizationID), Diff: Compare(before, after),
	}
}

// OfCustomRole returns the entry of a change of a custom role of an organization.
func OfCustomRole(before, after dbsqlc.OrganizationRole) Entry {
	return Entry{
		Kind: CustomRole, Name: named(before.Name, after.Name),
		Organization: either(before.OrganizationID, after.OrganizationID), Diff: Compare(before, after),
	}
}

// OfTemplate returns the entry of a change of a template.
func OfTemplate(before, after dbsqlc.Template) Entry {
	return Entry{
		Kind: Template, ID: either(before.ID, after.ID), Name: named(before.Name, after.Name),
		Organization: either(before.OrganizationID, after.OrganizationID), Diff: Compare(before, after),
	}
}

// OfGroup returns the entry of a change of a group. Its members are not part of the row: add them to the difference.
func OfGroup(before, after dbsqlc.Group) Entry {
	return Entry{
		Kind: Group, ID: either(before.ID, after.ID), Name: named(before.Name, after.Name),
		Organization: either(before.OrganizationID, after.OrganizationID), Diff: Compare(before, after),
	}
}

// OfTemplateVersion returns the entry of a change of a template version.
func OfTemplateVersion(before, after dbsqlc.TemplateVersion) Entry {
	return Entry{
		Kind: TemplateVersion, ID: either(before.ID, after.ID), Name: named(before.Name, after.Name),
		Organization: either(before.OrganizationID, after.OrganizationID), Diff: Compare(before, after),
	}
}

// OfWorkspace returns the entry of a change of a workspace.
func OfWorkspace(before, after dbsqlc.Workspace) Entry {
	return Entry{
		Kind: Workspace, ID: either(before.ID, after.ID), Name: named(before.Name, after.Name),
		Organization: either(before.OrganizationID, after.OrganizationID), Diff: Compare(before, after),
	}
}

// OfKey returns the entry of a change of a session or token of a user.
func OfKey(owner dbsqlc.User, before, after dbsqlc.ApiKey) Entry {
	name := named(before.Name, after.Name)
	if name == "" {
		name = named(before.ID, after.ID) // a session's public half
	}
	diff := Compare(before, after)
	for _, seen := range []string{"last_used_at", "user_agent", "address"} { // where it was used is no change
		delete(diff, seen)
	}
	e := Entry{Kind: APIKey, ID: owner.ID, Name: name, Diff: diff, Fields: map[string]any{
		"key_id": named(before.ID, after.ID), "owner": owner.Username,
	}}
	return e
}

// OfSSHKey returns the entry of a change of a user's public SSH key. Readers know the key by its fingerprint.
func OfSSHKey(owner dbsqlc.User, before, after dbsqlc.UserSshKey) Entry {
	diff := Compare(before, after)
	delete(diff, "public_key")
	return Entry{Kind: UserSSHKey, ID: either(before.ID, after.ID), Name: named(before.Name, after.Name), Diff: diff, Fields: map[string]any{"owner": owner.Username}}
}

// OfDevice returns the entry of a change of a user's device, which has the name of its region, if it has one. Its key
// is public, and readers recognize a device by it.
func OfDevice(owner dbsqlc.User, before, after dbsqlc.UserDevice, region string) Entry {
	diff := Compare(before, after)
	for _, other := range []string{"last_used_at", "endpoint", "endpoint_at", "gateway", "proxy_id"} { // what the gateway saw is no change
		delete(diff, other)
	}
	switch {
	case region == "":
	case before.ID == uuid.Nil:
		diff.Field("region", "", region)
	case after.ID == uuid.Nil:
		diff.Field("region", region, "")
	}
	return Entry{Kind: UserDevice, ID: either(before.ID, after.ID), Name: named(before.Name, after.Name), Diff: diff, Fields: map[string]any{"owner": owner.Username}}
}

func either(a, b uuid.UUID) uuid.UUID {
	if b != uuid.Nil {
		return b
	}
	return a
}

// named returns the object's name as readers know it: the former one, unless the object is new.
func named(before, after string) string {
	if before != "" {
		return before
	}
	return after
}
