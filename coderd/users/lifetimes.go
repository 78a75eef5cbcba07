package users

import (
	"fmt"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Defaults of Lifetimes.
const (
	DefaultSession  = 7 * 24 * time.Hour
	DefaultToken    = 30 * 24 * time.Hour
	DefaultMaxToken = 30 * 24 * time.Hour
)

// minSession is the shortest session. The use of open connections is noted every minute.
const minSession = time.Hour

// Lifetimes are how long sessions and tokens last. A changed setting applies to those that are created afterwards.
type Lifetimes struct {
	Session       time.Duration // of a session that is not used; 0 means DefaultSession
	Token         time.Duration // of a token that is created without a lifetime; 0 means DefaultToken, or MaxToken if that is less
	MaxToken      time.Duration // of any other token; 0 means DefaultMaxToken
	MaxAdminToken time.Duration // of a deployment owner's token; 0 means MaxToken
}

// Check returns a fault, Invalid, that names the setting of `coder server` which cannot be used.
func (l Lifetimes) Check() error {
	for _, setting := range []struct {
		flag  string
		value time.Duration
		min   time.Duration
	}{
		{"session-duration", l.Session, minSession}, {"max-token-lifetime", l.MaxToken, time.Minute},
		{"max-admin-token-lifetime", l.MaxAdminToken, time.Minute}, {"default-token-lifetime", l.Token, time.Minute},
	} {
		if setting.value != 0 && setting.value < setting.min {
			return fault.New(fault.Invalid, "--%s cannot be %s: it must be at least %s", setting.flag, setting.value,
				setting.min)
		}
	}
	if d := l.orDefaults(); d.Token > d.MaxToken {
		return fault.New(fault.Invalid, "--default-token-lifetime cannot be %s: --max-token-lifetime is %s", d.Token,
			d.MaxToken)
	}
	return nil
}

func (l Lifetimes) orDefaults() Lifetimes {
	if l.Session == 0 {
		l.Session = DefaultSession
	}
	if l.MaxToken == 0 {
		l.MaxToken = DefaultMaxToken
	}
	if l.MaxAdminToken == 0 {
		l.MaxAdminToken = l.MaxToken
	}
	if l.Token == 0 {
		l.Token = min(DefaultToken, l.MaxToken)
	}
	return l
}

// longest returns how long a token of a user may last.
func (l Lifetimes) longest(user dbsqlc.User) time.Duration {
	if slices.Contains(user.Roles, rbac.RoleOwner) {
		return l.MaxAdminToken
	}
	return l.MaxToken
}

// of returns the lifetime of a user's token that is created without one.
func (l Lifetimes) of(user dbsqlc.User) time.Duration { return min(l.Token, l.longest(user)) }

// days formats a duration for people, who count days.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days (%s)", d/day, d)
	}
	return d.String()
}
