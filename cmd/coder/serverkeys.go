package main

import (
	"maps"

	"github.com/codermesh/codermesh/v2/cmd/coder/settings"
)

// serverKeys are the places of the flags of `coder server` in its file.
var serverKeys = map[string]settings.Key{
	"access-url":          {Path: "networking.accessURL"},
	"wildcard-access-url": {Path: "networking.wildcardAccessURL"},
	"replica-url":         {Path: "networking.replicaURL"},
	"stun-address":        {Path: "networking.derp.stunAddress"},
	"ssh-address":         {Path: "networking.ssh.address"},

	"derp-server-stun-addresses": {Path: "networking.derp.stunAddresses"},

	"ssh-access-address":        {Path: "networking.ssh.accessAddress"},
	"ssh-autostart":             {Path: "networking.ssh.autostart"},
	"ssh-key-regions":           {Path: "networking.ssh.keyRegions"},
	"max-ssh-key-lifetime":      {Path: "networking.ssh.maxKeyLifetime"},
	"release-mirror-url":        {Path: "networking.releaseMirrorURL"},
	"archives-dir":              {Path: "archivesDir"},
	"aws-identity-ca-file":      {Path: "awsIdentityCAFile"},
	"azure-identity-ca-file":    {Path: "azureIdentityCAFile"},
	"google-identity-keys-file": {Path: "googleIdentityKeysFile"},
	"trusted-hosts":             {Path: "networking.trustedHosts"},
	"setup-code":                {Path: "setupCode", Secret: true, File: "setupCodeFile"},
	"proxy-trusted-headers":     {Path: "networking.proxyTrustedHeaders"},
	"proxy-trusted-origins":     {Path: "networking.proxyTrustedOrigins"},

	"wireguard-address":        {Path: "networking.wireguard.address"},
	"wireguard-access-address": {Path: "networking.wireguard.accessAddress"},
	"wireguard-dns-forward":    {Path: "networking.wireguard.dnsForward"},
	"max-device-lifetime":      {Path: "networking.wireguard.maxDeviceLifetime"},

	"block-direct-connections": {Path: "networking.derp.blockDirect"},
	"browser-only":             {Path: "networking.browserOnly"},

	"api-rate-limit": {Path: "networking.http.apiRateLimit"},

	"http-address":             {Path: "networking.http.httpAddress"},
	"disable-password-auth":    {Path: "networking.http.disablePasswordAuth"},
	"session-duration":         {Path: "networking.http.sessionDuration"},
	"max-token-lifetime":       {Path: "networking.http.maxTokenLifetime"},
	"max-admin-token-lifetime": {Path: "networking.http.maxAdminTokenLifetime"},
	"default-token-lifetime":   {Path: "defaultTokenLifetime"},

	"redirect-to-access-url": {Path: "networking.redirectToAccessURL"},

	"tls-enable":                        {Path: "networking.tls.enable"},
	"tls-address":                       {Path: "networking.tls.address"},
	"tls-cert-file":                     {Path: "networking.tls.certFiles"},
	"tls-key-file":                      {Path: "networking.tls.keyFiles"},
	"tls-min-version":                   {Path: "networking.tls.minVersion"},
	"tls-ciphers":                       {Path: "networking.tls.tlsCiphers"},
	"tls-client-auth":                   {Path: "networking.tls.clientAuth"},
	"tls-client-ca-file":                {Path: "networking.tls.clientCAFile"},
	"tls-acme-domain":                   {Path: "networking.tls.acme.domains"},
	"tls-acme-email":                    {Path: "networking.tls.acme.email"},
	"tls-acme-directory-url":            {Path: "networking.tls.acme.directoryURL"},
	"tls-acme-ca-file":                  {Path: "networking.tls.acme.caFile"},
	"strict-transport-security":         {Path: "networking.tls.strictTransportSecurity"},
	"strict-transport-security-options": {Path: "networking.tls.strictTransportSecurityOptions"},

	"log-json":           {Path: "introspection.logging.json"},
	"prometheus-enable":  {Path: "introspection.prometheus.enable"},
	"prometheus-address": {Path: "introspection.prometheus.address"},
	"pprof-enable":       {Path: "introspection.pprof.enable"},
	"pprof-address":      {Path: "introspection.pprof.address"},
	"trace":              {Path: "introspection.tracing.enable"},
	"audit-log-stdout":   {Path: "introspection.auditLog.stdout"},

	"health-check-threshold-database": {Path: "introspection.healthcheck.thresholdDatabase"},

	"provisioner-daemons":    {Path: "provisioning.daemons"},
	"provisioner-daemon-psk": {Path: "provisioning.daemonPSK", Secret: true, File: "provisioning.daemonPSKFile"},
	"provisioner-grace":      {Path: "provisioning.grace"},

	"postgres-url":              {Path: "pgConnectionURL", Secret: true, File: "pgConnectionURLFile"},
	"postgres-auth":             {Path: "pgAuth"},
	"postgres-conn-max-open":    {Path: "pgConnMaxOpen"},
	"postgres-conn-max-idle":    {Path: "pgConnMaxIdle"},
	"fetch-postgres":            {Path: "fetchPostgres"},
	"state-encryption-key":      {Path: "stateEncryption.keys", Secret: true},
	"state-encryption-key-file": {Path: "stateEncryption.keyFile"},
	"shutdown-deadline":         {Path: "shutdownDeadline"},
	"drain-delay":               {Path: "drainDelay"},
	"disable-path-apps":         {Path: "disablePathApps"},
	"scim-auth-header":          {Path: "scimAuthHeader", Secret: true, File: "scimAuthHeaderFile"},

	"default-quiet-hours-schedule": {Path: "userQuietHoursSchedule.defaultQuietHoursSchedule"},
	"allow-custom-quiet-hours":     {Path: "userQuietHoursSchedule.allowCustomQuietHours"},

	"audit-logs-retention":           {Path: "retention.audit_logs"},
	"connection-logs-retention":      {Path: "retention.connection_logs"},
	"build-state-retention":          {Path: "retention.build_states"},
	"job-retention":                  {Path: "retention.job_logs"},
	"api-keys-retention":             {Path: "retention.api_keys"},
	"workspace-agent-logs-retention": {Path: "retention.workspace_agent_logs"},
	"build-retention":                {Path: "retention.builds"},

	"oauth2-github-client-id":           {Path: "oauth2.github.clientID"},
	"oauth2-github-client-secret":       {Path: "oauth2.github.clientSecret", Secret: true, File: "oauth2.github.clientSecretFile"},
	"oauth2-github-allowed-orgs":        {Path: "oauth2.github.allowedOrgs"},
	"oauth2-github-allowed-teams":       {Path: "oauth2.github.allowedTeams"},
	"oauth2-github-allow-everyone":      {Path: "oauth2.github.allowEveryone"},
	"oauth2-github-allow-signups":       {Path: "oauth2.github.allowSignups"},
	"oauth2-github-device-flow":         {Path: "oauth2.github.deviceFlow"},
	"oauth2-github-enterprise-base-url": {Path: "oauth2.github.enterpriseBaseURL"},

	"oidc-allow-signups":               {Path: "oidc.allowSignups"},
	"oidc-client-id":                   {Path: "oidc.clientID"},
	"oidc-client-secret":               {Path: "oidc.clientSecret", Secret: true, File: "oidc.clientSecretFile"},
	"oidc-client-key-file":             {Path: "oidc.oidcClientKeyFile"},
	"oidc-client-cert-file":            {Path: "oidc.oidcClientCertFile"},
	"oidc-email-domain":                {Path: "oidc.emailDomain"},
	"oidc-issuer-url":                  {Path: "oidc.issuerURL"},
	"oidc-scopes":                      {Path: "oidc.scopes"},
	"oidc-ignore-email-verified":       {Path: "oidc.ignoreEmailVerified"},
	"oidc-username-field":              {Path: "oidc.usernameField"},
	"oidc-name-field":                  {Path: "oidc.nameField"},
	"oidc-email-field":                 {Path: "oidc.emailField"},
	"oidc-auth-url-params":             {Path: "oidc.authURLParams", JSON: true},
	"oidc-ignore-userinfo":             {Path: "oidc.ignoreUserInfo"},
	"oidc-group-field":                 {Path: "oidc.groupField"},
	"oidc-group-mapping":               {Path: "oidc.groupMapping", JSON: true},
	"oidc-group-auto-create":           {Path: "oidc.enableGroupAutoCreate"},
	"oidc-group-regex-filter":          {Path: "oidc.groupRegexFilter"},
	"oidc-allowed-groups":              {Path: "oidc.groupAllowed"},
	"oidc-user-role-field":             {Path: "oidc.userRoleField"},
	"oidc-user-role-mapping":           {Path: "oidc.userRoleMapping", JSON: true},
	"oidc-user-role-default":           {Path: "oidc.userRoleDefault"},
	"oidc-organization-field":          {Path: "oidc.organizationField"},
	"oidc-organization-mapping":        {Path: "oidc.organizationMapping", JSON: true},
	"oidc-organization-assign-default": {Path: "oidc.organizationAssignDefault"},
	"oidc-sign-in-text":                {Path: "oidc.signInText"},
	"oidc-icon-url":                    {Path: "oidc.iconURL"},
	"oidc-signups-disabled-text":       {Path: "oidc.signupsDisabledText"},

	"email-from":               {Path: "email.from"},
	"email-smarthost":          {Path: "email.smarthost"},
	"email-hello":              {Path: "email.hello"},
	"email-force-tls":          {Path: "email.forceTLS"},
	"email-auth-identity":      {Path: "email.emailAuth.identity"},
	"email-auth-username":      {Path: "email.emailAuth.username"},
	"email-auth-password":      {Path: "email.emailAuth.password", Secret: true},
	"email-auth-password-file": {Path: "email.emailAuth.passwordFile"},
	"email-tls-starttls":       {Path: "email.emailTLS.startTLS"},
	"email-tls-server-name":    {Path: "email.emailTLS.serverName"},
	"email-tls-skip-verify":    {Path: "email.emailTLS.insecureSkipVerify"},
	"email-tls-ca-cert-file":   {Path: "email.emailTLS.caCertFile"},
	"email-tls-cert-file":      {Path: "email.emailTLS.certFile"},
	"email-tls-cert-key-file":  {Path: "email.emailTLS.certKeyFile"},

	"docs-url":                  {Path: "networking.docsURL"},
	"support-links":             {Path: "supportLinks", JSON: true},
	"terms-of-service-url":      {Path: "termsOfServiceURL"},
	"cli-upgrade-message":       {Path: "client.cliUpgradeMessage"},
	"ssh-config-options":        {Path: "client.sshConfigOptions"},
	"ssh-hostname-prefix":       {Path: "client.sshHostnamePrefix"},
	"workspace-hostname-suffix": {Path: "client.workspaceHostnameSuffix"},

	"webhook-allowed-networks":        {Path: "notifications.webhook.allowedNetworks"},
	"notifications-method":            {Path: "notifications.method"},
	"notifications-webhook-endpoint":  {Path: "notifications.webhook.endpoint", Secret: true, File: "notifications.webhook.endpointFile"},
	"notifications-max-send-attempts": {Path: "notifications.maxSendAttempts"},
	"notifications-dispatch-timeout":  {Path: "notifications.dispatchTimeout"},
	"notifications-inbox-enabled":     {Path: "notifications.inbox.enabled"},
}

// jobKeys are the places of the flags of programs that run jobs.
var jobKeys = map[string]settings.Key{
	"cache-dir":                 {Path: "cacheDir"},
	"terraform":                 {Path: "provisioning.terraformBinary"},
	"install-terraform":         {Path: "provisioning.installTerraform"},
	"provisioner-isolation":     {Path: "provisioning.isolation"},
	"provisioner-docker-socket": {Path: "provisioning.dockerSocket"},
	"provisioner-env":           {Path: "provisioning.env"},
	"provisioner-read":          {Path: "provisioning.read"},
	"provisioner-file":          {Path: "provisioning.files"},
	"provisioner-job-memory":    {Path: "provisioning.jobLimits.memory"},
	"provisioner-job-processes": {Path: "provisioning.jobLimits.processes"},
	"provisioner-job-cpus":      {Path: "provisioning.jobLimits.cpus"},
	"provisioner-job-disk":      {Path: "provisioning.jobLimits.disk"},
	"provisioner-job-timeout":   {Path: "provisioning.jobLimits.timeout"},

	"provisioner-workspace-memory":    {Path: "provisioning.workspaceLimits.memory"},
	"provisioner-workspace-processes": {Path: "provisioning.workspaceLimits.processes"},
	"provisioner-workspace-tmp":       {Path: "provisioning.workspaceLimits.tmp"},
}

// provisionerKeys are the places of the flags of `coder provisionerd start` in its file.
var provisionerKeys = map[string]settings.Key{
	"name":               {Path: "name"},
	"psk":                {Path: "psk", Secret: true, File: "pskFile"},
	"key":                {Path: "key", Secret: true, File: "keyFile"},
	"tag":                {Path: "tags"},
	"org":                {Path: "organization"},
	"concurrency":        {Path: "concurrency"},
	"once":               {Path: "once"},
	"cancel-grace":       {Path: "cancelGrace"},
	"prometheus-address": {Path: "introspection.prometheus.address"},
	"log-json":           {Path: "introspection.logging.json"},
	"trace":              {Path: "introspection.tracing.enable"},
}

func withJobKeys(keys map[string]settings.Key) map[string]settings.Key {
	all := maps.Clone(jobKeys)
	maps.Copy(all, keys)
	return all
}
