package agent

import (
	"errors"
	"math"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/monitor"
	"github.com/codermesh/codermesh/v2/agent/usage"
)

var errNoLimit = errors.New("it has no size")

// measurer measures what monitors watch.
func measurer(meter *usage.Meter) func(volume string) (percent float64, err error) {
	return func(volume string) (float64, error) {
		measure := meter.Memory
		if volume != "" {
			measure = func() (usage.Amount, error) { return meter.Volume(volume) }
		}
		amount, err := measure()
		if err != nil {
			return 0, err
		}
		percent, ok := amount.Percent()
		if !ok {
			return 0, errNoLimit
		}
		return percent, nil
	}
}

// monitored returns what a manifest wants to be watched.
func monitored(m *agentpb.ManifestResponse) (out []monitor.Resource) {
	for _, r := range m.GetMonitors() {
		out = append(out, monitor.Resource{Volume: r.GetVolume(), Threshold: float64(r.GetThresholdPercent()),
			Over: r.GetOver()})
	}
	return out
}

// reportLevels reports the monitors, and goes on from the states that the server stores.
func reportLevels(reports *reports, watcher *monitor.Watcher, all []monitor.Level) {
	req := &agentpb.MonitorsRequest{}
	for _, l := range all {
		req.Levels = append(req.Levels, &agentpb.MonitorLevel{Volume: l.Volume, Over: l.Over,
			Percent: uint32(math.Floor(l.Percent))})
	}
	reports.add(report{levels: &levels{req, func(stored []*agentpb.MonitorLevel) {
		over := map[string]bool{}
		for _, l := range stored {
			over[l.GetVolume()] = l.GetOver()
		}
		watcher.Adopt(over)
	}}})
}
