package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// The provider documents six fields, seconds first. The agent also accepts five, as cron has them: existing templates
// use them, and they are unambiguous.
var (
	sixFields  = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.DowOptional | cron.Descriptor)
	fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
)

// parseSchedule parses a schedule, which may begin with a time zone. It puts single spaces between the fields, because
// the library panics if none follows the zone.
func parseSchedule(text string) (cron.Schedule, error) {
	fields := strings.Fields(text)
	text = strings.Join(fields, " ")
	if len(fields) > 0 && (strings.HasPrefix(fields[0], "TZ=") || strings.HasPrefix(fields[0], "CRON_TZ=")) {
		if fields = fields[1:]; len(fields) == 0 {
			return nil, errors.New("the schedule has a time zone and no times")
		}
	}
	if len(fields) == 5 {
		return fiveFields.Parse(text)
	}
	return sixFields.Parse(text)
}

// runSchedules runs the scripts that have a schedule, each at its times and never twice at once, until ctx ends.
func (w *workspace) runSchedules(ctx context.Context, m *agentpb.ManifestResponse) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range m.GetScripts() {
		if s.GetCron() == "" {
			continue
		}
		schedule, err := parseSchedule(s.GetCron())
		if err != nil {
			w.log.Warn("cannot parse a script's schedule", "script", s.GetDisplayName(), "err", err)
			continue
		}
		wg.Go(func() { w.runSchedule(ctx, schedule, s) })
	}
}

// scheduleLook bounds the sleep until a script is due, because the machine's clock may jump.
const scheduleLook = time.Minute

func (w *workspace) runSchedule(ctx context.Context, schedule cron.Schedule, s *agentpb.Script) {
	for next := schedule.Next(time.Now()); !next.IsZero(); {
		timer := time.NewTimer(min(time.Until(next), scheduleLook))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if time.Now().Before(next) {
			continue
		}
		m := w.latest.Load()
		w.runScript(ctx, s, w.scriptEnvironment(m), stageCron)
		next = schedule.Next(time.Now())
	}
}
