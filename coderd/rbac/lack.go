package rbac

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Lack is a power that an actor does not have.
type Lack struct {
	Power
	Organization uuid.UUID // uuid.Nil: in all of them, and the deployment
}

// String says so to the actor.
func (l Lack) String() string {
	if l.Organization == uuid.Nil {
		return fmt.Sprintf("You do not have permission to %s every %s.", l.Action, l.Resource)
	}
	return fmt.Sprintf("You do not have permission to %s every %s in this organization.", l.Action, l.Resource)
}

// Lacks returns a power in an organization, or in the deployment for uuid.Nil, that the actor does not hold.
func (a Actor) Lacks(organization uuid.UUID, powers []Power) (Lack, bool) {
	var missing Power
	holds := a.decide(func(a Actor) bool {
		i := slices.IndexFunc(powers, func(p Power) bool { return !a.Holds(p, organization) })
		if i >= 0 {
			missing = powers[i]
		}
		return i < 0
	})
	if holds {
		return Lack{}, false
	}
	return Lack{missing, organization}, true
}

// LacksOf returns a power that the roles of another user give and the actor does not hold. What every member of an
// organization may do, and what users may do with what they own, does not count.
func (a Actor) LacksOf(other Actor) (Lack, bool) {
	other = other.Current()
	plain := Actor{UserID: other.UserID}
	for _, m := range other.Memberships {
		plain.Memberships = append(plain.Memberships, Membership{Organization: m.Organization})
	}
	everything := powersOf(func(grant) bool { return true })
	for _, organization := range append([]uuid.UUID{uuid.Nil}, other.Organizations()...) {
		var given []Power
		for _, p := range everything {
			if other.Holds(p, organization) && !plain.Holds(p, organization) {
				given = append(given, p)
			}
		}
		if lack, ok := a.Lacks(organization, given); ok {
			return lack, true
		}
	}
	return Lack{}, false
}

// outranked returns a power that the roles of an object's account give and the actor lacks, if the action needs them
// all.
func (a Actor) outranked(action Action, object Object) (Lack, bool) {
	if object.Account == nil || action == Read || object.Account.UserID == a.UserID {
		return Lack{}, false
	}
	return a.LacksOf(*object.Account)
}

// MayGive returns nil if the actor may give or take a role with these powers: the actor must hold all of them. The
// organization is uuid.Nil for a role of the deployment.
func (a Actor) MayGive(role string, powers []Power, organization uuid.UUID) error {
	if lack, ok := a.Lacks(organization, powers); ok {
		return fault.New(fault.Forbidden, "You cannot give or take the role %s: it has powers that you do not have.",
			role).WithDetail("%s", lack)
	}
	return nil
}
