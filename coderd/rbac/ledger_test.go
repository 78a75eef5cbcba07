package rbac_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// TestLedger takes rights from an actor who has used some of them.
func TestLedger(t *testing.T) {
	t.Parallel()
	both := rbac.Actor{UserID: self, Groups: []uuid.UUID{group}, Memberships: []rbac.Membership{
		{Organization: org, Roles: []string{rbac.RoleOrganizationAdmin}}, {Organization: otherOrg},
	}}
	one := rbac.Actor{UserID: self, Memberships: both.Memberships[:1]}
	plain := rbac.Actor{UserID: self, Memberships: []rbac.Membership{{Organization: org}, {Organization: otherOrg}}}
	owned := func(a rbac.Actor) rbac.Actor {
		a.Roles = []string{rbac.RoleOwner}
		return a
	}
	read := func(o uuid.UUID) func(rbac.Actor) {
		return func(a rbac.Actor) { a.May(rbac.Read, rbac.Of(rbac.Organization, uuid.Nil).In(o)) }
	}
	ofGroup := rbac.Of(rbac.Template, uuid.Nil).In(org).SharedWith(rbac.Sharing{group: rbac.LevelUse})
	for name, c := range map[string]struct {
		began, now rbac.Actor
		uses       func(rbac.Actor)
		goesOn     bool
	}{
		"nothing used":                           {both, one, func(rbac.Actor) {}, true},
		"another organization":                   {both, one, read(org), true},
		"this organization":                      {both, one, read(otherOrg), false},
		"its list":                               {both, one, func(a rbac.Actor) { a.Extent(rbac.Template) }, true},
		"what is only shown":                     {both, one, func(a rbac.Actor) { read(otherOrg)(a.Current()) }, true},
		"a check that refused":                   {one, rbac.Actor{UserID: self}, read(otherOrg), true},
		"an owner needs no membership":           {owned(both), owned(rbac.Actor{UserID: self}), read(otherOrg), true},
		"a former owner does":                    {owned(one), one, read(otherOrg), false},
		"a role":                                 {both, plain, func(a rbac.Actor) { a.Sees(rbac.AuditLog, org) }, false},
		"the same role elsewhere":                {both, plain, func(a rbac.Actor) { a.MemberOf(otherOrg) }, true},
		"a membership":                           {both, one, func(a rbac.Actor) { a.MemberOf(otherOrg) }, false},
		"a group":                                {both, one, func(a rbac.Actor) { a.Reaches(ofGroup) }, false},
		"a power":                                {both, plain, func(a rbac.Actor) { a.Holds(rbac.Power{Action: rbac.Create, Resource: rbac.Group}, org) }, false},
		"a power somewhere":                      {both, plain, func(a rbac.Actor) { a.Somewhere(rbac.Power{Action: rbac.Create, Resource: rbac.Group}) }, false},
		"all powers of a role":                   {both, plain, func(a rbac.Actor) { a.Lacks(org, rbac.RolePowers(rbac.RoleOrganizationAdmin)) }, false},
		"what is created":                        {both, plain, func(a rbac.Actor) { a.MayCreate(rbac.Of(rbac.Group, uuid.Nil).In(org)) }, false},
		"another user":                           {both, rbac.Actor{UserID: other}, func(rbac.Actor) {}, false},
		"a token that became a workspace's":      {both, inside(both), func(rbac.Actor) {}, false},
		"many uses need everything":              {both, one, func(a rbac.Actor) { many(a, read(org)) }, false},
		"many uses with more rights than before": {one, both, func(a rbac.Actor) { many(a, read(org)) }, true},
	} {
		l := new(rbac.Ledger)
		c.uses(c.began.Keeping(l))
		if got := l.Become(c.began, c.now); got != c.goesOn {
			t.Errorf("%s: the request goes on: %v", name, got)
		}
	}
}

func many(a rbac.Actor, use func(rbac.Actor)) {
	for range 1000 {
		use(a)
	}
}

// TestLedgerFollows checks that what is checked after rights have changed follows the new ones, although the actor is the old one.
func TestLedgerFollows(t *testing.T) {
	t.Parallel()
	began := rbac.Actor{UserID: self, Groups: []uuid.UUID{group}, Memberships: []rbac.Membership{{Organization: org, Roles: []string{rbac.RoleOrganizationAdmin}}}}
	now := rbac.Actor{UserID: self, Memberships: []rbac.Membership{{Organization: otherOrg}}}
	l := new(rbac.Ledger)
	a := began.Keeping(l)
	if !l.Become(began, now) {
		t.Fatal("a request that used nothing ends")
	}
	o := rbac.Of(rbac.Organization, uuid.Nil)
	if a.May(rbac.Read, o.In(org)) == nil || a.MemberOf(org) || a.Sees(rbac.AuditLog, org) || a.Current().MemberOf(org) {
		t.Error("a lost right is used")
	}
	if a.May(rbac.Read, o.In(otherOrg)) != nil {
		t.Error("a new right is not used")
	}
	if got := a.Organizations(); len(got) != 1 || got[0] != otherOrg {
		t.Errorf("organizations: %v", got)
	}
	if got := a.Principals(); len(got) != 2 {
		t.Errorf("principals: %v", got)
	}
	if e := a.Extent(rbac.Workspace); len(e.Member) != 1 || e.Member[0] != otherOrg || len(e.Principals) != 2 {
		t.Errorf("lists: %+v", e)
	}
}

// TestLedgerRaces uses a right while it is lost: either the request ends, or the check refuses.
func TestLedgerRaces(t *testing.T) {
	t.Parallel()
	began, now := with(nil), rbac.Actor{UserID: self}
	for range 200 {
		l := new(rbac.Ledger)
		a := began.Keeping(l)
		var allowed, goesOn bool
		var both sync.WaitGroup
		both.Go(func() { allowed = a.MemberOf(org) })
		both.Go(func() { goesOn = l.Become(began, now) })
		both.Wait()
		if allowed && goesOn {
			t.Fatal("a lost right was used, and the request goes on")
		}
	}
}
