package provisionerd

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// metrics are the daemon's metrics. docs/provisioners.md lists them for operators.
type metrics struct {
	jobs     *prometheus.CounterVec   // kind, status
	duration *prometheus.HistogramVec // kind
	sessions prometheus.Counter
	dropped  prometheus.Counter
}

// newMetrics registers d's metrics, unless into is nil. Registering two daemons in one registry panics.
func newMetrics(into prometheus.Registerer, d *Daemon) *metrics {
	const space, part = "codermesh", "provisionerd"
	m := &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: space, Subsystem: part, Name: "jobs_total",
			Help: "Jobs that ended here, by kind (start, stop, delete, import, dry_run) and status (succeeded, " +
				"failed, canceled)."}, []string{"kind", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: space, Subsystem: part,
			Name:    "job_duration_seconds",
			Help:    "How long jobs ran, from the confirmed lease to the journalled result.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}}, []string{"kind"}),
		sessions: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Subsystem: part,
			Name: "sessions_total",
			Help: "Sessions that the server opened: one more than it was lost."}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Subsystem: part,
			Name: "log_lines_dropped_total",
			Help: "Lines of job logs that were left out because a log was too long."}),
	}
	if into == nil {
		return m
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: space, Subsystem: part, Name: name, Help: help},
			func() float64 {
				d.mu.Lock()
				defer d.mu.Unlock()
				return value()
			})
	}
	into.MustRegister(m.jobs, m.duration, m.sessions, m.dropped,
		gauge("slots", "How many jobs may run at once.", func() float64 { return float64(len(d.slots)) }),
		gauge("jobs_running", "Jobs that run now.", func() float64 { return float64(d.workingLocked()) }),
		gauge("jobs_undelivered", "Jobs that ended, and of which the server does not have everything yet.",
			func() float64 {
				return float64(len(d.leases) - d.workingLocked())
			}),
		gauge("connected", "1 while there is a session with the server.", func() float64 {
			if d.session == nil {
				return 0
			}
			return 1
		}),
		gauge("draining", "1 when no further jobs are taken.", func() float64 {
			if !d.draining {
				return 0
			}
			return 1
		}),
	)
	return m
}

// ended counts a job that has ended.
func (m *metrics) ended(offer *provisionerpb.Offer, result *provisionerpb.Result, took time.Duration, dropped int) {
	status := "succeeded"
	switch {
	case result.GetCanceled():
		status = "canceled"
	case result.GetError() != "":
		status = "failed"
	}
	kind := kindOf(offer)
	m.jobs.WithLabelValues(kind, status).Inc()
	m.duration.WithLabelValues(kind).Observe(took.Seconds())
	m.dropped.Add(float64(dropped))
}

func kindOf(offer *provisionerpb.Offer) string {
	switch j := offer.GetJob().(type) {
	case *provisionerpb.Offer_TemplateImport:
		return "import"
	case *provisionerpb.Offer_TemplateDryRun:
		return "dry_run"
	case *provisionerpb.Offer_WorkspaceBuild:
		switch j.WorkspaceBuild.GetTransition() {
		case provisionerpb.Transition_TRANSITION_START:
			return "start"
		case provisionerpb.Transition_TRANSITION_STOP:
			return "stop"
		case provisionerpb.Transition_TRANSITION_DELETE:
			return "delete"
		}
	}
	return "unknown"
}
