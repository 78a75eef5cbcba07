package audit

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxTargets bounds what a user can try in a minute and find in the log: an attacker must not fill the database.
	// What is beyond is counted in the server's log.
	maxTargets = 64
	// maxRefusals bounds what is not stored yet, of all users.
	maxRefusals = 4096
)

// attempt is what a user tries within a minute.
type attempt struct {
	whose
	kind  ConnectionType
	agent uuid.UUID
	name  string // without an agent
}

// whose are a user's attempts in a minute.
type whose struct {
	user   uuid.UUID
	minute int64 // since 1970
}

// refusal counts the repetitions of an attempt.
type refusal struct {
	row           dbsqlc.ReportRefusalParams // of the first one
	tries, stored int32
}

// Refused records that a user may not open a connection, for the reason err, which it returns. It records no other
// error, such as that the workspace does not run, and none of visitors who are not signed in. Repetitions within a
// minute are counted in one row, which also holds if several servers record them. It does not block. A nil Connections
// records nothing.
func (c *Connections) Refused(what Connection, err error) error {
	f := fault.As(err)
	if c == nil || what.User == uuid.Nil || f == nil || f.Code != fault.Forbidden && f.Code != fault.NotFound {
		return err
	}
	now := c.now()
	key := attempt{whose: whose{what.User, now.Unix() / 60}, kind: what.Type, agent: what.Agent}
	if key.agent == uuid.Nil {
		key.name = strings.ToLower(database.Visible(bounded(what.Name)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.refusals[key]; known != nil {
		known.tries++
		return err
	}
	if c.targets[key.whose]++; c.targets[key.whose] > maxTargets || len(c.refusals) >= maxRefusals {
		c.unlisted[key.whose]++
		return err
	}
	c.refusals[key] = &refusal{row: what.refusal(key, now, f), tries: 1}
	c.wake.Poke()
	return err
}

func (what Connection) refusal(key attempt, now time.Time, why *fault.Error) dbsqlc.ReportRefusalParams {
	row := what.row(uuid.Nil, now)
	out := dbsqlc.ReportRefusalParams{
		UserID: what.User, Type: row.Type, Minute: key.minute, At: row.ConnectTime, Reason: "no access",
		StatusCode: int32(why.Code.HTTPStatus()), SlugOrPort: row.SlugOrPort, Ip: row.Ip, UserAgent: row.UserAgent,
		Path: row.Path, Region: row.Region, AgentID: optional(what.Agent),
	}
	if what.Mesh {
		out.Path = ""
	}
	if why.Code == fault.Forbidden {
		out.Reason = bounded(why.Message)
	}
	if what.Agent == uuid.Nil {
		owner, rest, named := strings.Cut(key.name, "/")
		if !named {
			owner, rest = "", key.name
		}
		if owner != sdk.Me {
			out.OwnerName = owner
		}
		out.WorkspaceName, out.AgentName, _ = strings.Cut(rest, ".")
	}
	return out
}

// due are the refusals that the database does not have: new ones at once, repetitions when their minute has passed. all
// also returns repetitions of this minute.
func (c *Connections) due(now time.Time, all bool) map[attempt]dbsqlc.ReportRefusalParams {
	minute := now.Unix() / 60
	out := map[attempt]dbsqlc.ReportRefusalParams{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, x := range c.refusals {
		past := key.minute < minute
		switch {
		case x.tries > x.stored && (x.stored == 0 || past || all):
			row := x.row
			row.Tries = x.tries - x.stored
			out[key] = row
		case past:
			delete(c.refusals, key)
		}
	}
	return out
}

// storeRefusals stores what is due.
func (c *Connections) storeRefusals(ctx context.Context, all bool) error {
	c.reportUnlisted(c.now(), all)
	for key, row := range c.due(c.now(), all) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		_, err := c.db.ReportRefusal(ctx, row)
		cancel()
		if err != nil {
			return err
		}
		c.mu.Lock()
		if x := c.refusals[key]; x != nil {
			x.stored += row.Tries
		}
		c.mu.Unlock()
	}
	return nil
}

// reportUnlisted tells the server's log of users who tried more in a minute that has passed than the connection log
// has.
func (c *Connections) reportUnlisted(now time.Time, all bool) {
	minute := now.Unix() / 60
	left := map[uuid.UUID]int{}
	c.mu.Lock()
	for key := range c.targets {
		if key.minute < minute || all {
			left[key.user] += c.unlisted[key]
			delete(c.targets, key)
			delete(c.unlisted, key)
		}
	}
	c.mu.Unlock()
	for user, n := range left {
		if n > 0 {
			c.log.Warn("refused connections are missing in the log: a user tries too many", "user", user, "rows", n)
		}
	}
}
