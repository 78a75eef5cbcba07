// What the API's answers look like, as far as the dashboard reads them. The names are those of the server's own types.

export type WorkspaceStatus =
  | "pending" | "starting" | "running" | "stopping" | "stopped" | "failed" | "canceling" | "canceled" | "deleting" | "deleted";
export type Transition = "start" | "stop" | "delete";
export type JobStatus = "pending" | "running" | "succeeded" | "canceling" | "canceled" | "failed";
export type LogLevel = "trace" | "debug" | "info" | "warn" | "error";

export interface Workspace {
  id: string;
  created_at: string;
  updated_at: string;
  owner_id: string;
  owner_name: string;
  organization_id: string;
  template_id: string;
  template_name: string;
  template_display_name: string;
  template_icon: string;
  template_active_version_id: string;
  template_require_active_version: boolean;
  latest_build: WorkspaceBuild;
  outdated: boolean;
  name: string;
  autostart_schedule?: string | null;
  ttl_ms?: number | null;
  last_used_at: string;
  health: { healthy: boolean; failing_agents: string[] };
  automatic_updates: "always" | "never";
  favorite: boolean;
  next_start_at: string | null;
}

export interface WorkspacesResponse {
  workspaces: Workspace[];
  count: number;
}

export interface WorkspaceBuild {
  id: string;
  created_at: string;
  workspace_id: string;
  workspace_name: string;
  workspace_owner_name: string;
  template_version_id: string;
  template_version_name: string;
  build_number: number;
  transition: Transition;
  initiator_name: string;
  job: ProvisionerJob;
  reason: string;
  resources: WorkspaceResource[];
  deadline?: string | null;
  status: WorkspaceStatus;
}

export interface WorkspaceResource {
  id: string;
  type: string;
  name: string;
  hide: boolean;
  icon: string;
  workspace_transition: Transition;
  agents: WorkspaceAgent[];
  metadata: { key: string; value: string; sensitive: boolean }[];
}

export interface WorkspaceAgent {
  id: string;
  name: string;
  status: "connecting" | "connected" | "disconnected" | "timeout";
  lifecycle_state: string;
  operating_system: string;
  architecture: string;
  version: string;
  directory?: string;
  expanded_directory?: string;
  created_at: string;
  first_connected_at?: string | null;
  last_connected_at?: string | null;
  disconnected_at?: string | null;
  started_at?: string | null;
  ready_at?: string | null;
  apps: WorkspaceApp[];
  scripts: AgentScript[];
  log_sources: { id: string; display_name: string; icon: string }[];
  display_apps: string[];
  health: { healthy: boolean; reason?: string };
  latency?: Record<string, { preferred: boolean; latency_ms: number }>;
  troubleshooting_url: string;
  ssh_host_key?: string;
}

export interface WorkspaceApp {
  id: string;
  url?: string;
  external: boolean;
  slug: string;
  display_name?: string;
  command?: string;
  icon?: string;
  subdomain: boolean;
  subdomain_name?: string;
  sharing_level: "owner" | "authenticated" | "organization" | "public";
  health: "disabled" | "initializing" | "healthy" | "unhealthy";
  group?: string;
  hidden: boolean;
  open_in: "slim-window" | "tab";
  tooltip?: string;
}

export interface AgentScript {
  id: string;
  log_source_id: string;
  display_name: string;
  script: string;
  cron: string;
  run_on_start: boolean;
  run_on_stop: boolean;
  start_blocks_login: boolean;
  timeout: number; // nanoseconds
}

export interface AgentLog {
  id: number;
  created_at: string;
  output: string;
  level: LogLevel;
  source_id: string;
}

export interface AgentMetadata {
  result: { collected_at: string; age: number; value: string; error: string };
  description: { display_name: string; key: string; interval: number; timeout: number };
}

export interface ListeningPort {
  process_name: string;
  network: string;
  port: number;
}

export interface ProvisionerJob {
  id: string;
  created_at: string;
  started_at?: string | null;
  completed_at?: string | null;
  canceled_at?: string | null;
  status: JobStatus;
  error?: string;
  error_code?: string;
  worker_id?: string | null;
  worker_name?: string;
  file_id: string;
  tags: Record<string, string>;
  queue_position: number;
  queue_size: number;
  type: "template_version_import" | "template_version_dry_run" | "workspace_build";
  input: { template_version_id?: string; workspace_build_id?: string };
  metadata: { template_version_name: string; template_name: string; template_display_name: string; workspace_id?: string; workspace_name?: string };
  waiting_reason?: string;
}

export interface JobLog {
  id: number;
  created_at: string;
  log_source: string;
  log_level: LogLevel;
  stage: string;
  output: string;
}

export interface ProvisionerDaemon {
  id: string;
  key_name: string;
  created_at: string;
  last_seen_at?: string | null;
  name: string;
  version: string;
  provisioners: string[];
  tags: Record<string, string>;
  status: "offline" | "idle" | "busy";
  current_job: { id: string; status: JobStatus; template_name: string; template_display_name: string } | null;
  previous_job: { id: string; status: JobStatus; template_name: string; template_display_name: string } | null;
}

export interface ProvisionerKey {
  id: string;
  created_at: string;
  name: string;
  tags: Record<string, string>;
}

export interface Template {
  id: string;
  created_at: string;
  updated_at: string;
  name: string;
  display_name: string;
  description: string;
  icon: string;
  active_version_id: string;
  active_user_count: number;
  build_time_stats: Record<string, { P50: number | null; P95: number | null }>;
  deprecated: boolean;
  deprecation_message: string;
  default_ttl_ms: number;
  activity_bump_ms: number;
  created_by_name: string;
  allow_user_autostart: boolean;
  allow_user_autostop: boolean;
  allow_user_cancel_workspace_jobs: boolean;
  require_active_version: boolean;
}

export interface TemplateExample {
  id: string;
  name: string;
  description: string;
  icon: string;
  tags: string[];
  markdown: string;
}

export interface TemplateVersion {
  id: string;
  template_id?: string | null;
  created_at: string;
  name: string;
  message: string;
  job: ProvisionerJob;
  readme: string;
  created_by: { username: string };
  archived: boolean;
  warnings: string[];
}

export interface TemplateVariable {
  name: string;
  description: string;
  type: string;
  value: string;
  default_value: string;
  required: boolean;
  sensitive: boolean;
}

export interface RichParameter {
  name: string;
  display_name?: string;
  description: string;
  description_plaintext: string;
  type: string;
  form_type: string;
  mutable: boolean;
  default_value: string;
  icon: string;
  options: { name: string; description: string; value: string; icon: string }[];
  validation_error?: string;
  validation_regex?: string;
  validation_min?: number | null;
  validation_max?: number | null;
  validation_monotonic?: string;
  required: boolean;
  ephemeral: boolean;
}

export interface Preset {
  ID: string;
  Name: string;
  Description: string;
  Icon: string;
  Default: boolean;
  Parameters: { Name: string; Value: string }[];
}

export interface ParameterValue {
  name: string;
  value: string;
}

export interface Diagnostic {
  severity: "error" | "warning";
  summary: string;
  detail: string;
}

export interface PreviewValue {
  value: string;
  valid: boolean;
}

export interface PreviewParameter {
  name: string;
  display_name: string;
  description: string;
  type: string;
  form_type: string;
  styling: { placeholder?: string; disabled?: boolean; label?: string; mask_input?: boolean } | null;
  mutable: boolean;
  ephemeral: boolean;
  default_value: PreviewValue;
  value: PreviewValue;
  icon: string;
  options: { name: string; description: string; value: PreviewValue; icon: string }[];
  validations: {
    validation_error: string;
    validation_regex: string | null;
    validation_min: number | null;
    validation_max: number | null;
    validation_monotonic: string | null;
  }[];
  required: boolean;
  order: number;
  diagnostics: Diagnostic[];
}

export interface EvaluateResponse {
  id: number;
  diagnostics: Diagnostic[];
  parameters: PreviewParameter[];
}

export interface Role {
  name: string;
  display_name: string;
}

export interface User {
  id: string;
  username: string;
  name: string;
  email: string;
  created_at: string;
  last_seen_at?: string | null;
  status: "active" | "dormant" | "suspended";
  login_type: string;
  roles: Role[];
}

export interface UsersResponse {
  users: User[];
  count: number;
}

export interface APIKey {
  id: string;
  user_id: string;
  username?: string;
  last_used: string;
  expires_at: string;
  created_at: string;
  token_name: string;
  lifetime_seconds: number;
}

export interface GitSSHKey {
  public_key: string;
  updated_at: string;
}

export interface BuildInfo {
  version: string;
  external_url: string;
  dashboard_url: string;
  deployment_id: string;
}

export interface SSHConfig {
  hostname_prefix: string;
  hostname_suffix: string;
}

export interface HealthSection {
  name: string;
  label: string;
  healthy: boolean;
  severity: "ok" | "warning" | "error";
  code: string;
  message: string;
  remedy: string;
  details?: Record<string, unknown>;
}

export interface Health {
  healthy: boolean;
  severity: "ok" | "warning" | "error";
  sections: HealthSection[];
}

export interface MeshPeer {
  id: string;
  kind: "server" | "agent" | "provisioner" | "client";
  name: string;
  path: "direct" | "relayed" | "unknown";
  latency_ms: number;
  rx_bytes: number;
  tx_bytes: number;
  last_seen: string;
  connected: boolean;
  links: string[];
}
