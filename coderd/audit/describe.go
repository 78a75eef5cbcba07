package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// past are the verbs of a description.
var past = map[Action]string{
	Create: "created", Write: "changed", Delete: "deleted", Start: "started", Stop: "stopped", Login: "signed in",
	Logout: "signed out", Cancel: "canceled", Transfer: "transferred",
}

// facts are the additional fields that a description has.
type facts struct {
	Owner   string `json:"workspace_owner"`
	Because string `json:"because"` // why a policy acted
}

// describe returns the row as a sentence.
func describe(l dbsqlc.AuditLog) string {
	var known facts
	// A row of another form has none of them.
	_ = json.Unmarshal(l.AdditionalFields, &known)
	what := objectOf(l, known)
	switch {
	case l.StatusCode >= 400:
		return describeFailure(l, what)
	case Action(l.Action) == Login || Action(l.Action) == Logout:
		return who(l) + " " + verb(l)
	case Kind(l.ResourceType) == WorkspaceBuild && l.UserID == nil && Action(l.Action) != Cancel:
		return fmt.Sprintf("Workspace %s %s", strings.TrimPrefix(what, kindName(l.ResourceType)+" "), verb(l))
	}
	text := who(l) + " " + did(l, what)
	if known.Because != "" {
		text += " because " + known.Because
	}
	return text
}

// describeFailure describes what was refused, and what failed.
func describeFailure(l dbsqlc.AuditLog, what string) string {
	switch {
	case Action(l.Action) == Login:
		return who(l) + " could not sign in"
	case Action(l.Action) == Logout:
		return who(l) + " " + verb(l)
	case Kind(l.ResourceType) == WorkspaceBuild && Action(l.Action) != Cancel:
		workspace := strings.TrimPrefix(what, kindName(l.ResourceType)+" ")
		return fmt.Sprintf("%s of workspace %s failed", buildNoun(l.Action), workspace)
	case Action(l.Action) == Create: // the target is what the request was sent to
		return who(l) + " was not allowed to create " + anyOf(kindName(l.ResourceType))
	case Action(l.Action) == Write:
		return who(l) + " was not allowed to change " + what
	}
	return who(l) + " was not allowed to " + l.Action + " " + what
}

// who returns the subject of a description. The server's own actor has a name that a user could have.
func who(l dbsqlc.AuditLog) string {
	if l.UserID == nil && l.Actor == ByServer {
		return "System"
	}
	return l.Actor
}

func verb(l dbsqlc.AuditLog) string {
	if v := past[Action(l.Action)]; v != "" {
		return v
	}
	return l.Action
}

// objectOf returns the object of a description. A workspace of another user has its owner's name.
func objectOf(l dbsqlc.AuditLog, known facts) string {
	what := kindName(l.ResourceType)
	if l.ResourceTarget == "" {
		return what
	}
	kind := Kind(l.ResourceType)
	if known.Owner != "" && known.Owner != l.Actor && (kind == Workspace || kind == WorkspaceBuild) {
		return what + " " + known.Owner + "/" + l.ResourceTarget
	}
	return what + " " + l.ResourceTarget
}

// did returns what was done to an object.
func did(l dbsqlc.AuditLog, what string) string {
	action, target := Action(l.Action), l.ResourceTarget
	switch kind := Kind(l.ResourceType); {
	case kind == File && action == Create: // its target is a hash
		return "uploaded a template's files"
	case kind == TemplateConsent && action == Create:
		return "gave template " + target + " consent to use credentials"
	case kind == TemplateConsent && action == Delete:
		return "withdrew the consent to template " + target
	case kind == OrganizationMember && action == Create:
		return "added member " + target
	case kind == OrganizationMember && action == Delete:
		return "removed member " + target
	case action == Write:
		return changed(l, what)
	}
	return verb(l) + " " + what
}

// maxChanged bounds how many changed fields a description names.
const maxChanged = 3

// changed returns what a change did, in the words of its difference.
func changed(l dbsqlc.AuditLog, what string) string {
	var diff map[string]sdk.AuditDiffField
	if err := json.Unmarshal(l.Diff, &diff); err != nil || len(diff) == 0 {
		return "changed " + what
	}
	switch status, dormant := diff["status"], diff["dormant_at"]; {
	case Kind(l.ResourceType) == User && status.New == string(sdk.UserSuspended):
		return "suspended " + what
	case Kind(l.ResourceType) == User && status.New == string(sdk.UserActive):
		return "activated " + what
	case Kind(l.ResourceType) == Workspace && dormant.New != nil && dormant.Old == nil:
		return "made " + what + " dormant"
	case Kind(l.ResourceType) == Workspace && dormant.Old != nil && dormant.New == nil:
		return "woke " + what
	}
	fields := map[string]bool{}
	for name := range diff {
		fields[fieldName(name)] = true
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	if more := len(names) - maxChanged; more > 0 {
		names = append(names[:maxChanged], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("changed %s of %s", listOf(names), what)
}

// listOf puts names into a sentence: "a, b and c".
func listOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// fieldName returns a field of a difference as readers call it.
func fieldName(field string) string {
	for _, unit := range []string{"_id", "_seconds", "_millis", "_add", "_remove"} {
		field = strings.TrimSuffix(field, unit)
	}
	words := strings.Split(field, "_")
	for i, word := range words {
		switch word {
		case "ttl", "url", "ssh", "acl":
			words[i] = strings.ToUpper(word)
		}
	}
	return strings.Join(words, " ")
}

// anyOf puts the indefinite article before a kind.
func anyOf(kind string) string {
	switch {
	case strings.HasPrefix(kind, "the "):
		return kind
	case kind != "" && strings.IndexByte("aeio", kind[0]) >= 0: // not "u": a user
		return "an " + kind
	}
	return "a " + kind
}

func buildNoun(action string) string {
	switch Action(action) {
	case Start:
		return "The start"
	case Stop:
		return "The stop"
	default:
		return "The deletion"
	}
}

// kindName returns a kind as readers call it.
func kindName(kind string) string {
	switch Kind(kind) {
	case APIKey:
		return "token"
	case GitSSHKey:
		return "the Git SSH key of"
	case UserDevice:
		return "device"
	case UserSSHKey:
		return "public SSH key"
	case SSHAuthority:
		return "the SSH certificate authority for"
	case IdentityKeys:
		return "the keys of ID tokens of"
	case SSHCertificate:
		return "SSH certificate"
	case WorkspaceBuild:
		return "the build of workspace"
	case ExternalAuth:
		return "the external login"
	case TemplateConsent:
		return "the consent to template"
	}
	return strings.ReplaceAll(kind, "_", " ")
}
