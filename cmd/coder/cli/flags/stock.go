package flags

// absent says of flags of Coder's command line that name relays why there is no such thing here.
var absent = map[string]string{
	"coder server --derp-config-url":  foreignRelays,
	"coder server --derp-config-path": foreignRelays,
}

const foreignRelays = "relays admit only the nodes that the server names to them, and those of others do not ask it"

// stock lists the variables that Coder's command line reads for a flag, where they differ from those that EnvNames
// makes of the command's path: scripts that set them mean the flag. testdata/coder-variables.txt of cmd/coder has all
// that Coder documents.
var stock = map[string][]string{
	"config-ssh --coder-binary-path":                {"CODER_SSH_CONFIG_BINARY_PATH"},
	"config-ssh --disable-autostart":                {"CODER_CONFIGSSH_DISABLE_AUTOSTART"},
	"config-ssh --force-unix-filepaths":             {"CODER_CONFIGSSH_UNIX_FILEPATHS"},
	"config-ssh --dry-run":                          {"CODER_SSH_DRY_RUN"},
	"config-ssh --hostname-suffix":                  {"CODER_CONFIGSSH_HOSTNAME_SUFFIX"},
	"config-ssh --no-wildcard":                      {"CODER_CONFIGSSH_NO_WILDCARD"},
	"config-ssh --ssh-host-prefix":                  {"CODER_CONFIGSSH_SSH_HOST_PREFIX"},
	"config-ssh --wait":                             {"CODER_CONFIGSSH_WAIT"},
	"groups create --avatar-url":                    {"CODER_AVATAR_URL"},
	"groups create --display-name":                  {"CODER_DISPLAY_NAME"},
	"port-forward --disable-autostart":              {"CODER_SSH_DISABLE_AUTOSTART"},
	"provisioner jobs list --initiator":             {"CODER_PROVISIONER_JOB_LIST_INITIATOR"},
	"provisioner jobs list --limit":                 {"CODER_PROVISIONER_JOB_LIST_LIMIT"},
	"provisioner jobs list --status":                {"CODER_PROVISIONER_JOB_LIST_STATUS"},
	"provisioner keys create --tag":                 {"CODER_PROVISIONERD_TAGS"},
	"provisioner list --limit":                      {"CODER_PROVISIONER_LIST_LIMIT"},
	"provisioner list --max-age":                    {"CODER_PROVISIONER_LIST_MAX_AGE"},
	"provisioner list --show-offline":               {"CODER_PROVISIONER_SHOW_OFFLINE"},
	"provisioner list --status":                     {"CODER_PROVISIONER_LIST_STATUS"},
	"templates versions promote --template":         {"CODER_TEMPLATE_NAME"},
	"tokens create --lifetime":                      {"CODER_TOKEN_LIFETIME"},
	"tokens create --name":                          {"CODER_TOKEN_NAME"},
	"tokens create --user":                          {"CODER_TOKEN_USER"},
	"external-workspaces create --no-wait":          {"CODER_CREATE_NO_WAIT"},
	"templates versions promote --template-version": {"CODER_TEMPLATE_VERSION_NAME"},
}
