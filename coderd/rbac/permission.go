package rbac

import (
	"fmt"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Permission is what a route declares. It is checked before the route's handler runs, without knowledge of the object;
// the handler then calls May with the object itself. The zero value declares nothing, and no route may have it.
type Permission struct {
	kind     permissionKind
	action   Action
	resource Resource
}

type permissionKind int

const (
	undeclared permissionKind = iota
	public
	signedIn
	anyToken
	needs
)

var (
	// Public is open to all; the request is not authenticated.
	Public = Permission{kind: public}
	// SignedIn is open to every user, but not to tokens with limited scopes: it names nothing that a scope could allow.
	SignedIn = Permission{kind: signedIn}
	// AnyToken is open to every user, with any token: for what says nothing about the user, and for handlers that
	// decide about each object.
	AnyToken = Permission{kind: anyToken}
)

// Needs returns the permission to do action to at least some object of the kind. It panics if the table has no such
// row.
func Needs(action Action, resource Resource) Permission {
	if _, ok := table[resource][action]; !ok {
		panic(fmt.Sprintf("rbac: the permission table has no row for %s %s", action, resource))
	}
	return Permission{needs, action, resource}
}

// Declared reports whether the permission is not the zero value.
func (p Permission) Declared() bool { return p.kind != undeclared }

// IsPublic reports whether the permission requires no sign-in.
func (p Permission) IsPublic() bool { return p.kind == public }

// Check returns nil if the actor may use the route, else a fault.
func (p Permission) Check(a Actor) error {
	switch {
	case p.kind == public:
		return nil
	case p.kind == undeclared:
		return fault.New(fault.Forbidden, "This is not allowed.")
	case !a.SignedIn():
		return fault.New(fault.Unauthenticated, "You are not signed in.")
	case p.kind == signedIn && a.Scope.Limited():
		return fault.New(fault.Forbidden, "A token with limited scopes cannot do this.").
			WithDetail("Sign in with: coder login <url>")
	case p.kind == signedIn || p.kind == anyToken || a.allowedSomewhere(p.action, p.resource):
		return nil
	case !a.Scope.somewhere(p.action, p.resource):
		return a.Scope.outOfScope(p.action, p.resource)
	default:
		return forbidden(p.action, p.resource)
	}
}

// Resource returns the kind of object that the permission is about, or "" for Public, SignedIn and AnyToken.
func (p Permission) Resource() Resource { return p.resource }

// Names reports whether the permission names what a request with a method does, so that a token's scope can decide
// about it. Routes that need no more than sign-in or reading may keep something for the user, such as a favorite.
func (p Permission) Names(method string) bool {
	switch method {
	case "GET", "HEAD":
		return true
	case "POST": // some read with a body
		return p.kind == needs
	}
	return p.kind == needs && p.action != Read
}

func (p Permission) String() string {
	switch p.kind {
	case public:
		return "public"
	case signedIn:
		return "signed in"
	case anyToken:
		return "signed in, with any token"
	case needs:
		return fmt.Sprintf("%s %s", p.action, p.resource)
	default:
		return "undeclared"
	}
}
