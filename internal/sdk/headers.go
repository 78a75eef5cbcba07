package sdk

// Headers with a credential, in the form in which http.Header keeps them.
const (
	AgentTokenHeader      = "Coder-Agent-Token"
	ProvisionerPSKHeader  = "Coder-Provisioner-Daemon-Psk"
	ProvisionerKeyHeader  = "Coder-Provisioner-Daemon-Key"
	ProvisionerNameHeader = "Coder-Provisioner-Daemon-Name"
	ProvisionerTagsHeader = "Coder-Provisioner-Daemon-Tags" // k=v, as a URL query
	// ProvisionerOrganizationHeader names the organization whose jobs the daemon takes, by name or id; without it, the
	// key's or the default one.
	ProvisionerOrganizationHeader = "Coder-Provisioner-Daemon-Organization"
	// ProvisionerInstanceHeader distinguishes a restarted daemon from another one that was given the same name.
	ProvisionerInstanceHeader = "Coder-Provisioner-Daemon-Instance"
)

// KeyHeader carries a random key of a request that creates something. A server that answers with KeysHeader recognizes
// by it that the same user repeats the request, and creates nothing again. See docs/servers.md.
const (
	KeyHeader  = "Idempotency-Key"
	KeysHeader = "X-Coder-Idempotency-Keys"
	// MinKey and MaxKey bound a key, in bytes of visible ASCII.
	MinKey, MaxKey = 16, 255
)
