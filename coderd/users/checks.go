package users

import (
	"net/mail"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

var usernameForm = lazyregexp.New(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)

func checkUsername(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > 32:
		return "must have at most 32 characters"
	case !usernameForm().MatchString(name):
		return "must be letters and digits, with single hyphens between them"
	case slices.Contains([]string{sdk.Me, sdk.DefaultOrganization, sdk.PrebuildsOwner, "first", "login", "logout", "authmethods", "roles", "export"}, strings.ToLower(name)):
		return "is reserved"
	}
	return ""
}

func checkEmail(email string) string {
	if email == "" {
		return "is required"
	}
	addr, err := mail.ParseAddress(email)
	if err != nil || addr.Address != email || len(email) > 320 || strings.ContainsFunc(email, httpapi.Hidden) {
		return "must be an email address"
	}
	return ""
}

func checkName(name string) string {
	if len(name) > 128 || strings.ContainsFunc(name, httpapi.Hidden) {
		return "must have at most 128 characters, all of them visible"
	}
	return ""
}

// CheckProfile returns what is wrong with an address or a name that an identity provider gives a user, "" if nothing
// is.
func CheckProfile(email, name string) string {
	f := &fault.Error{}
	check(f, "email", checkEmail(email))
	check(f, "name", checkName(name))
	if len(f.Fields) == 0 {
		return ""
	}
	return "The user's " + f.Fields[0].Field + " " + f.Fields[0].Detail + "."
}

func check(f *fault.Error, field, problem string) {
	if problem != "" {
		f.Fields = append(f.Fields, fault.Field{Field: field, Detail: problem})
	}
}
