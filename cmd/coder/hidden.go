package main

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/settings"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// hide keeps templates from the daemon's configuration folder, and from the files with secrets that its settings and
// its environment name.
func (opts *terraformOptions) hide(cmd *cobra.Command, configDir, postgresURL string) {
	files := append(settings.SecretFiles(cmd), filesOfURL(postgresURL)...)
	files = append(files, filesOfEnvironment(os.Environ(), opts.env)...)
	for _, text := range opts.files { // jobs get copies
		if _, path, ok := strings.Cut(text, "="); ok {
			files = append(files, path)
		}
	}
	opts.hidden = nil
	for _, name := range append(files, configDir) {
		if absolute, err := filepath.Abs(name); err == nil && name != "" {
			opts.hidden = append(opts.hidden, absolute)
		}
	}
}

// filesOfURL returns the files with secrets that a PostgreSQL URL names.
func filesOfURL(text string) (files []string) {
	address, err := url.Parse(text)
	if err != nil {
		return nil
	}
	for _, name := range []string{"sslkey", "sslcert", "passfile"} {
		if file := address.Query().Get(name); file != "" {
			files = append(files, file)
		}
	}
	return files
}

// namesSecret matches variables that name a file which may hold a secret, as clients of databases, clouds and clusters
// call them. A path is one only if another word says what of: AZURE_CLIENT_CERTIFICATE_PATH and
// ARM_OIDC_TOKEN_FILE_PATH, not PATH.
var namesSecret = lazyregexp.New(`_(FILE|KEY|CREDENTIALS)$|(KEY|TOKEN|SECRET|CERT|CERTIFICATE|CREDENTIALS?|PASSWORD)_([A-Z]+_)?PATH$|` +
	`^(PGPASSFILE|PGSSLKEY|PGSSLCERT|KUBECONFIG|KUBE_CONFIG_PATHS?|NETRC|BOTO_CONFIG)$`)

// filesOfEnvironment returns the files that variables such as PGPASSFILE, AWS_SHARED_CREDENTIALS_FILE and
// OTEL_EXPORTER_OTLP_CLIENT_KEY name, except variables that templates may see.
func filesOfEnvironment(environ, shared []string) (files []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !namesSecret().MatchString(name) || name == "SSL_CERT_FILE" || settings.Public(flagOf(name)) ||
			slices.Contains(shared, name) {
			continue
		}
		for _, file := range filepath.SplitList(value) {
			if info, err := os.Stat(file); filepath.IsAbs(file) && err == nil && info.Mode().IsRegular() {
				files = append(files, file)
			}
		}
	}
	return files
}

// flagOf returns a variable's name in the form of a flag: CODER_TLS_CLIENT_CA_FILE becomes coder-tls-client-ca-file.
func flagOf(variable string) string {
	return strings.ToLower(strings.ReplaceAll(variable, "_", "-"))
}
