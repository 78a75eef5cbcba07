// Package metrics exports counts from the database to Prometheus, and some of them as JSON: workspaces, agents, jobs,
// users, and the connections to the database itself. Mesh exports one server's part of the mesh. Metrics that existing
// dashboards for this API expect keep those names; others begin with codermesh. Every server of a deployment reports
// the same numbers, except for its own connections and its part of the mesh. The package changes nothing.
package metrics

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// freshFor is how long the numbers are reused: several scrapers cost no more than one.
	freshFor = 10 * time.Second
	// timeout bounds the queries of a scrape.
	timeout = 5 * time.Second
)

var (
	agentsUp = prometheus.NewDesc("coderd_agents_up", "Connected agents of a workspace.",
		[]string{"username", "workspace_name", "template_name", "template_version"}, nil)
	latestBuild = prometheus.NewDesc("coderd_workspace_latest_build_status", "Workspaces by status of their latest build.",
		[]string{"status", "template_name", "template_version", "workspace_owner", "workspace_transition"}, nil)
	latestBuilds = prometheus.NewDesc("coderd_api_workspace_latest_build",
		"Workspaces by the status of their latest build's job.", []string{"status"}, nil)
	activeUsers = prometheus.NewDesc("coderd_api_active_users_duration_hour",
		"Users who were active within the last hour.", nil, nil)
	// There is no license, so no limit either. Dashboards compare the number of users with one.
	licensed = prometheus.NewDesc("coderd_license_active_users", "Users who are neither suspended nor deleted.",
		nil, nil)
	licenseLimit = prometheus.NewDesc("coderd_license_limit_users", "0: the number of users has no limit.", nil, nil)
	licenseAsks  = prometheus.NewDesc("coderd_license_user_limit_enabled", "0: the number of users has no limit.", nil,
		nil)
	agentConns = prometheus.NewDesc("coderd_agents_connections", "Agents by the status of their connection and of their start script.",
		[]string{"agent_name", "lifecycle_state", "status", "username", "workspace_name"}, nil)
	agentApps = prometheus.NewDesc("coderd_agents_apps", "Apps with a health check, by their health.",
		[]string{"agent_name", "app_name", "health", "username", "workspace_name"}, nil)
	sshSessions = agentSessions("coderd_agentstats_session_count_ssh",
		"SSH sessions of people and programs, without those of editors.")
	vscodeSessions = agentSessions("coderd_agentstats_session_count_vscode",
		"Connections of VS Code and editors like it.")
	jetbrainsSessions = agentSessions("coderd_agentstats_session_count_jetbrains", "Connections of JetBrains' editors.")
	terminals         = agentSessions("coderd_agentstats_session_count_reconnecting_pty", "Viewers of web terminals.")
	agentRx           = agentSessions("coderd_agentstats_rx_bytes",
		"Bytes into the workspace, since its agent's process began.")
	agentTx = agentSessions("coderd_agentstats_tx_bytes",
		"Bytes out of the workspace, since its agent's process began.")
	agentLatency = prometheus.NewDesc("coderd_agents_connection_latencies_seconds", "Round trip of a connected agent to its relay.",
		[]string{"agent_name", "derp", "preferred", "username", "workspace_name"}, nil)
	agentStartup = prometheus.NewDesc("coderd_agentstats_startup_script_seconds", "How long the agent's latest start scripts took.",
		[]string{"agent_name", "success", "template_name", "template_version", "username", "workspace_name"}, nil)
	prebuiltCreated = prebuilds("created_total",
		"Prebuilt workspaces that the server created for a preset of a template's active version.")
	prebuiltFailed   = prebuilds("failed_total", "Prebuilt workspaces whose first build failed.")
	prebuiltClaimed  = prebuilds("claimed_total", "Prebuilt workspaces that users got.")
	prebuiltDesired  = prebuilds("desired", "Prebuilt workspaces that the preset asks for now.")
	prebuiltRunning  = prebuilds("running", "Prebuilt workspaces that have started and have no user yet.")
	prebuiltEligible = prebuilds("eligible", "Prebuilt workspaces that are ready for a user.")
	prebuiltLimited  = prebuilds("preset_hard_limited", "1 if no more are created because the last ones failed.")

	oldestJob = prometheus.NewDesc("codermesh_jobs_oldest_pending_seconds",
		"How long the oldest waiting job has waited; 0 if none waits.", nil, nil)
	jobs = prometheus.NewDesc("codermesh_jobs", "Jobs that wait for a provisioner or run.",
		[]string{"status"}, nil)
	provisioners = prometheus.NewDesc("codermesh_provisioners_online",
		"Provisioners that are connected to any server.", nil, nil)
	databaseUp = prometheus.NewDesc("codermesh_database_up",
		"1 if the database has answered this scrape's queries.", nil, nil)
	connections = prometheus.NewDesc("codermesh_database_connections", "This server's connections to the database.",
		[]string{"state"}, nil)
	connectionsMax = prometheus.NewDesc("codermesh_database_connections_max", "How many of them there may be.", nil,
		nil)
	waits = prometheus.NewDesc("codermesh_database_waits_total",
		"Queries of this server that waited for a connection, because none was idle.", nil, nil)
	waitSeconds = prometheus.NewDesc("codermesh_database_wait_seconds_total", "How long they waited.", nil, nil)
	build       = prometheus.NewDesc("codermesh_build_info", "Always 1; the labels describe this server's program.",
		[]string{"version", "revision"}, nil)
)

func prebuilds(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("coderd_prebuilt_workspaces_"+name, help,
		[]string{"template_name", "preset_name", "organization_name"}, nil)
}

func agentSessions(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"agent_name", "username", "workspace_name"}, nil)
}

// Uses returns the sessions of an agent that is connected to the given server, nil if unknown, and the round trip to
// its relay with the relay's name, 0 if unknown.
type Uses func(agent uuid.UUID, server *uuid.UUID) (sessions *sdk.AgentConnections, relay string, latency time.Duration)

// Collector is a prometheus.Collector. Safe for concurrent use.
type Collector struct {
	db   *database.DB
	uses Uses
	log  *slog.Logger

	mu   sync.Mutex // held while the database is queried, so that one scrape at a time does so
	last []prometheus.Metric
	at   time.Time
	// counted is what clients of the API were told last.
	counted sdk.DeploymentStats
}

// New returns the collector.
func New(db *database.DB, uses Uses, log *slog.Logger) *Collector {
	return &Collector{db: db, uses: uses, log: log}
}

// Describe names the metrics.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		agentsUp, agentConns, agentApps, latestBuild, latestBuilds, activeUsers, licensed, licenseLimit, licenseAsks, jobs, oldestJob, provisioners,
		databaseUp, connections, connectionsMax, waits, waitSeconds, build, sshSessions, vscodeSessions, jetbrainsSessions, terminals, agentLatency, agentStartup,
		agentRx, agentTx,
		prebuiltCreated, prebuiltFailed, prebuiltClaimed, prebuiltDesired, prebuiltRunning, prebuiltEligible, prebuiltLimited,
	} {
		out <- d
	}
}

// Collect queries the database, or repeats the numbers of a few seconds ago. Without the database it omits the numbers
// from there.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	stat := c.db.Pool.Stat()
	out <- gauge(connections, float64(stat.AcquiredConns()), "used")
	out <- gauge(connections, float64(stat.IdleConns()), "idle")
	out <- gauge(connectionsMax, float64(stat.MaxConns()))
	out <- counter(waits, float64(stat.EmptyAcquireCount()))
	out <- counter(waitSeconds, stat.EmptyAcquireWaitTime().Seconds())
	out <- gauge(build, 1, buildinfo.Version(), buildinfo.Revision())
	for _, m := range c.numbers() {
		out <- m
	}
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func (c *Collector) numbers() []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < freshFor {
		return c.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	all, err := c.read(ctx, c.db.Queries)
	if err != nil {
		c.log.Warn("cannot read metrics", "err", err)
		return []prometheus.Metric{gauge(databaseUp, 0)}
	}
	all = append(all, gauge(databaseUp, 1))
	c.last, c.at = all, time.Now()
	return all
}

func (c *Collector) read(ctx context.Context, q *dbsqlc.Queries) ([]prometheus.Metric, error) {
	var out []prometheus.Metric
	agents, err := q.CountAgentsUp(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		out = append(out,
			gauge(agentsUp, float64(a.Up), a.Username, a.WorkspaceName, a.TemplateName, a.TemplateVersion))
	}
	connected, err := q.ListAgentsForMetrics(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range connected {
		out = append(out, gauge(agentConns, 1, a.AgentName, a.LifecycleState, a.Status, a.Username, a.WorkspaceName))
		if a.StartupSeconds >= 0 {
			success := strconv.FormatBool(sdk.AgentLifecycle(a.LifecycleState) == sdk.LifecycleReady)
			out = append(out, gauge(agentStartup, a.StartupSeconds, a.AgentName, success, a.TemplateName,
				a.TemplateVersion, a.Username, a.WorkspaceName))
		}
		if sdk.AgentStatus(a.Status) != sdk.AgentConnected {
			continue
		}
		sessions, relay, latency := c.uses(a.ID, a.ServerID)
		if sessions != nil {
			for desc, n := range map[*prometheus.Desc]uint64{
				sshSessions: uint64(sessions.SSH), vscodeSessions: uint64(sessions.VSCode), jetbrainsSessions: uint64(sessions.JetBrains),
				terminals: uint64(sessions.ReconnectingPTY), agentRx: sessions.RxBytes, agentTx: sessions.TxBytes,
			} {
				out = append(out, gauge(desc, float64(n), a.AgentName, a.Username, a.WorkspaceName))
			}
		}
		if latency > 0 {
			out = append(out,
				gauge(agentLatency, latency.Seconds(), a.AgentName, relay, "true", a.Username, a.WorkspaceName))
		}
	}
	apps, err := q.ListAppsForMetrics(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range apps {
		out = append(out, gauge(agentApps, 1, a.AgentName, a.Slug, a.Health, a.Username, a.WorkspaceName))
	}
	builds, err := q.CountLatestBuilds(ctx)
	if err != nil {
		return nil, err
	}
	byStatus := map[string]int64{}
	for _, b := range builds {
		byStatus[b.Status] += b.Workspaces
		out = append(out, gauge(latestBuild, float64(b.Workspaces), b.Status, b.TemplateName, b.TemplateVersion,
			b.Username, b.Transition))
	}
	for status, n := range byStatus {
		out = append(out, gauge(latestBuilds, float64(n), status))
	}
	pools, err := countPrebuilds(ctx, q)
	if err != nil {
		return nil, err
	}
	out = append(out, pools...)
	all, err := q.CountForMetrics(ctx)
	if err != nil {
		return nil, err
	}
	return append(out, gauge(activeUsers, float64(all.ActiveUsers)),
		gauge(licensed, float64(all.Users)), gauge(licenseLimit, 0), gauge(licenseAsks, 0), gauge(jobs,
			float64(all.JobsPending), "pending"),
		gauge(jobs, float64(all.JobsRunning), "running"), gauge(oldestJob, all.OldestPending), gauge(provisioners, float64(all.ProvisionersOnline))), nil
}
