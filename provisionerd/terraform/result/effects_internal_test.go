package result

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// effects lists, by the test that shows it, which attributes have their effect: in the shell, on a page, or in a build. A test is named by its
// file, and a colon and its name if the file has others. TestEveryFieldArrives shows less: that a value arrives. TestReference fails for an
// attribute of the provider that is not here.
var effects = map[string][]string{
	"agent/duties_test.go: TestAppHealth": {
		"coder_app.healthcheck.interval", "coder_app.healthcheck.threshold", "coder_app.healthcheck.url",
	},
	"agent/sshd/session_test.go: TestMOTD": {
		"coder_agent.motd_file",
	},
	"coderd/agents/keys_test.go: TestNoUserData": {
		"coder_agent.api_key_scope",
	},
	"e2e/instances_test.go: TestMachineOfACloud": {
		"coder_agent.auth", "coder_agent_instance.agent_id", "coder_agent_instance.instance_id",
	},
	"coderd/workspaces/prebuilds_test.go: TestScheduledPrebuilds": {
		"data.coder_workspace_preset.prebuilds.scheduling.schedule.cron",
		"data.coder_workspace_preset.prebuilds.scheduling.schedule.instances",
		"data.coder_workspace_preset.prebuilds.scheduling.timezone",
	},
	"coderd/workspaces/prebuilds_test.go: TestExpiringPrebuilds": {
		"data.coder_workspace_preset.prebuilds.expiration_policy.ttl",
	},
	"e2e/devcontainer_linux_test.go: TestDevcontainer": {
		"coder_devcontainer.agent_id", "coder_devcontainer.workspace_folder",
		"coder_devcontainer.config_path", "coder_devcontainer.subagent_id",
	},
	"e2e/extauth_test.go: TestExternalAuth": {
		"data.coder_external_auth.access_token", "data.coder_external_auth.id",
		"data.coder_external_auth.optional",
	},
	"e2e/monitors_linux_test.go: TestMonitors": {
		"coder_agent.resources_monitoring.volume.enabled", "coder_agent.resources_monitoring.volume.path",
		"coder_agent.resources_monitoring.volume.threshold",
		"coder_agent.resources_monitoring.memory.enabled", "coder_agent.resources_monitoring.memory.threshold",
	},
	"e2e/prebuilds_test.go: TestPrebuiltWorkspace": {
		"data.coder_workspace_preset.prebuilds.instances",
	},
	"e2e/testdata/effects.txtar": {
		"coder_agent.arch", "coder_agent.dir", "coder_agent.env", "coder_agent.init_script", "coder_agent.os",
		"coder_agent.shutdown_script", "coder_agent.startup_script", "coder_agent.startup_script_behavior", "coder_agent.token",
		"coder_env.agent_id", "coder_env.merge_strategy", "coder_env.name", "coder_env.value", "coder_script.agent_id",
		"coder_script.cron", "coder_script.display_name", "coder_script.log_path", "coder_script.run_on_start",
		"coder_script.run_on_stop", "coder_script.script", "coder_script.start_blocks_login", "coder_script.timeout",
		"data.coder_parameter.name", "data.coder_parameter.value", "data.coder_provisioner.arch", "data.coder_provisioner.os",
		"data.coder_workspace.access_url", "data.coder_workspace.id", "data.coder_workspace.name", "data.coder_workspace.start_count",
		"data.coder_workspace.template_id", "data.coder_workspace.template_name", "data.coder_workspace.template_version",
		"data.coder_workspace.transition", "data.coder_workspace_owner.email", "data.coder_workspace_owner.full_name",
		"data.coder_workspace_owner.groups", "data.coder_workspace_owner.id", "data.coder_workspace_owner.login_type",
		"data.coder_workspace_owner.name", "data.coder_workspace_owner.rbac_roles", "data.coder_workspace_owner.ssh_public_key",
		"data.coder_workspace.access_port",
	},
	"e2e/testdata/external.txtar": {
		"coder_external_agent.agent_id",
	},
	"e2e/testdata/parameters.txtar": {
		"data.coder_parameter.ephemeral", "data.coder_parameter.validation.max", "data.coder_parameter.validation.min",
		"data.coder_parameter.validation.max_disabled", "data.coder_parameter.validation.min_disabled",
	},
	"e2e/testdata/presets.txtar": {
		"data.coder_workspace_preset.default", "data.coder_workspace_preset.name", "data.coder_workspace_preset.parameters",
		"data.coder_workspace_preset.id",
	},
	"e2e/testdata/provisioners.txtar": {
		"data.coder_workspace_tags.tags",
	},
	"e2e/testdata/quota.txtar": {
		"coder_metadata.daily_cost", "coder_metadata.resource_id",
	},
	"provisionerd/terraform/claim_test.go: TestClaimKeepsAgents": {
		"data.coder_workspace.is_prebuild", "data.coder_workspace.is_prebuild_claim", "data.coder_workspace.prebuild_count",
	},
	"provisionerd/terraform/job_test.go: TestBuildParameters": {
		"data.coder_parameter.validation.monotonic",
	},
	"provisionerd/terraform/job_test.go: TestGivenFacts": {
		"data.coder_workspace_owner.oidc_access_token", "data.coder_workspace_owner.session_token",
		"data.coder_workspace_owner.ssh_private_key",
	},
	"site/e2e/apps.test.ts: opens apps by host, with websockets, and gives them no session": {
		"coder_app.agent_id", "coder_app.display_name", "coder_app.slug", "coder_app.subdomain", "coder_app.url",
	},
	"site/e2e/apps.test.ts: opens apps by path or sends them to their host, ports by number, and commands in a terminal": {
		"coder_app.command", "coder_app.external",
	},
	"site/e2e/apps.test.ts: opens shared apps for others, and only those": {
		"coder_app.share",
	},
	"site/e2e/create.test.ts: has a form for every kind of parameter, checked as it is filled in": {
		"data.coder_parameter.default", "data.coder_parameter.description", "data.coder_parameter.display_name",
		"data.coder_parameter.form_type", "data.coder_parameter.mutable", "data.coder_parameter.option.name",
		"data.coder_parameter.option.value", "data.coder_parameter.type", "data.coder_parameter.validation.error",
		"data.coder_parameter.validation.regex",
	},
	"site/e2e/diagnosis.test.ts: says why an agent does not connect, as the command line does": {
		"coder_agent.connection_timeout",
	},
	"site/e2e/effects.test.ts: shows agents, apps and resources as the template says": {
		"coder_agent.display_apps.port_forwarding_helper", "coder_agent.display_apps.ssh_helper", "coder_agent.display_apps.vscode",
		"coder_agent.display_apps.vscode_insiders", "coder_agent.display_apps.web_terminal", "coder_agent.metadata.display_name",
		"coder_agent.metadata.interval", "coder_agent.metadata.key", "coder_agent.metadata.order", "coder_agent.metadata.script",
		"coder_agent.metadata.timeout", "coder_agent.order", "coder_agent.troubleshooting_url", "coder_app.group", "coder_app.hidden",
		"coder_app.icon", "coder_app.order", "coder_app.tooltip", "coder_metadata.hide", "coder_metadata.icon",
		"coder_metadata.item.key", "coder_metadata.item.sensitive", "coder_metadata.item.value",
		"coder_metadata.item.is_null", "coder_script.icon",
	},
	"site/e2e/effects.test.ts: shows the form as the template says": {
		"data.coder_parameter.icon", "data.coder_parameter.option.description", "data.coder_parameter.option.icon",
		"data.coder_parameter.order", "data.coder_workspace_preset.description",
		"data.coder_parameter.optional", "data.coder_workspace_preset.icon",
	},
	"site/e2e/restart.test.ts: shows a masked parameter only when it is asked to": {
		"data.coder_parameter.styling",
	},
	"site/src/lib/links.test.ts": {
		"coder_app.open_in",
	},
}

// effectOf returns the test that shows an attribute's effect, or "".
func effectOf(path string) (test string) {
	for name, paths := range effects {
		for _, p := range paths {
			if p == path {
				return name
			}
		}
	}
	return ""
}

// TestEffectsExist checks that each test that effects names is there, and that no attribute is named twice.
func TestEffectsExist(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for test, paths := range effects {
		file, name, named := strings.Cut(test, ": ")
		text, err := os.ReadFile(filepath.Join("../../..", filepath.FromSlash(file)))
		if err != nil {
			t.Error(err)
			continue
		}
		if named && !strings.Contains(string(text), "func "+name+"(") && !strings.Contains(string(text), `it("`+name+`"`) {
			t.Errorf("%s has no test %q", file, name)
		}
		for _, path := range paths {
			if seen[path] {
				t.Errorf("%s is named twice", path)
			}
			seen[path] = true
		}
	}
}
