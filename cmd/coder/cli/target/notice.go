package target

import (
	"cmp"
	"context"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// NoticeEvery bounds how long a session goes on without asking the server whether something is going to happen to its
// workspace, unless its Options say otherwise.
const NoticeEvery = time.Hour

// notices tells the user of a session what is going to happen to the workspace, each consequence once for its time.
type notices struct {
	every     time.Duration // 0 means NoticeEvery
	askAt     time.Time
	announced map[sdk.ScheduledAction]time.Time // when each announced consequence is due
}

// look returns the sentences that the user has not been told yet, and decides when to ask the server again.
func (n *notices) look(ws sdk.Workspace, now time.Time) (news []string) {
	n.askAt = now.Add(cmp.Or(n.every, NoticeEvery))
	sooner := func(at time.Time) {
		if at.After(now) && at.Before(n.askAt) {
			n.askAt = at
		}
	}
	for _, c := range ws.Consequences {
		if c.At == nil || c.AnnounceAt == nil || !c.At.After(now) {
			continue
		}
		sooner(*c.AnnounceAt)
		if c.AnnounceAt.After(now) {
			continue
		}
		sooner(*c.At) // it may be postponed until then
		if !n.announced[c.Action].Equal(*c.At) {
			if n.announced == nil {
				n.announced = map[sdk.ScheduledAction]time.Time{}
			}
			n.announced[c.Action] = *c.At
			news = append(news, ws.FullName()+": "+c.Explanation)
		}
	}
	return news
}

// ask reads the workspace if it is time, and passes on what is new. An error only delays the next notice.
func (n *notices) ask(ctx context.Context, t *Target, note func(string)) {
	if n.askAt.IsZero() || time.Now().Before(n.askAt) {
		return
	}
	n.askAt = time.Now().Add(noticeRetry)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ws, err := t.Client.Workspace(ctx, t.Workspace.ID)
	if err != nil {
		return
	}
	for _, text := range n.look(ws, time.Now()) {
		note(text)
	}
}

// noticeRetry is when to ask again after the server did not answer.
const noticeRetry = time.Minute
