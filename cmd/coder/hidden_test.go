package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
)

// authorities are the settings that name a file with public certificates.
var authorities = []string{
	"tls-client-ca-file", "tls-acme-ca-file", "email-tls-ca-cert-file", "client-tls-ca-file", "aws-identity-ca-file", "azure-identity-ca-file",
}

// daemonWith returns a daemon's command with its flags and variables read.
func daemonWith(t *testing.T, path string, args ...string) *cobra.Command {
	t.Helper()
	root := cli.New(append(provisionerCmds(), serverCmd())...)
	cmd, _, err := root.Find(strings.Fields(path))
	if err != nil {
		t.Fatal(err)
	}
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	root.SetArgs(append(strings.Fields(path), args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestFilesOfSettingsAreHidden walks all settings of the daemons that run templates. Each file that a flag or its variable names is hidden
// from templates, unless it holds the certificates of authorities.
func TestFilesOfSettingsAreHidden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	hides := func(name string, args ...string) bool {
		var opts terraformOptions
		opts.hide(daemonWith(t, name, args...), "/var/lib/codermesh", "")
		return slices.Contains(opts.hidden, file)
	}
	seen, public := 0, map[string]bool{}
	commands(func(cmd *cobra.Command) {
		name, found := strings.CutPrefix(cmd.CommandPath(), "coder ")
		if !found || name != "server" && name != "provisionerd start" {
			return
		}
		var names []*pflag.Flag
		cmd.InheritedFlags() // adds them
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.HasSuffix(f.Name, "-file") || f.Name == "config" || strings.Contains(f.Usage, "file with") {
				names = append(names, f)
			}
		})
		for _, f := range names {
			seen++
			want := !slices.Contains(authorities, f.Name)
			public[f.Name] = !want
			if got := hides(name, "--"+f.Name, file); got != want {
				t.Errorf("%s --%s: hidden %v, want %v", name, f.Name, got, want)
			}
			for _, variable := range flags.EnvNames(cmd, f) {
				t.Run(variable, func(t *testing.T) {
					t.Setenv(variable, file)
					if got := hides(name); got != want {
						t.Errorf("%s with $%s: hidden %v, want %v", name, variable, got, want)
					}
				})
			}
		}
	})
	if seen < 25 {
		t.Errorf("only %d settings name files", seen)
	}
	for _, name := range authorities {
		if !public[name] {
			t.Errorf("no daemon has --%s: remove it from the list", name)
		}
	}
}

// TestFilesOfEnvironmentAreHidden covers files that other variables, and the database's URL, name.
func TestFilesOfEnvironmentAreHidden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	hides := func(postgresURL string, shared ...string) bool {
		opts := terraformOptions{env: shared}
		opts.hide(daemonWith(t, "server"), "/var/lib/codermesh", postgresURL)
		return slices.Contains(opts.hidden, file)
	}
	if hides("postgres://db/coder") {
		t.Error("a file that nothing names is hidden")
	}
	for _, name := range []string{"sslkey", "sslcert", "passfile"} {
		if !hides("postgres://db/coder?" + name + "=" + file) {
			t.Errorf("%s of the database's URL is not hidden", name)
		}
	}
	for _, name := range []string{"PATH_OF_PROGRAM", "TERRAFORM_PATH", "MANPATH"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, file)
			if hides("") {
				t.Errorf("the file of $%s is hidden, which says nothing of a secret", name)
			}
		})
	}
	for _, name := range []string{"PGPASSFILE", "PGSSLKEY", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"OTEL_EXPORTER_OTLP_CLIENT_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "TF_CLI_CONFIG_FILE",
		"AZURE_CLIENT_CERTIFICATE_PATH", "ARM_OIDC_TOKEN_FILE_PATH", "KUBE_CONFIG_PATH", "NETRC"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, file)
			if !hides("") {
				t.Errorf("the file of $%s is not hidden", name)
			}
			if hides("", name) {
				t.Errorf("the file of $%s is hidden although templates may see the variable", name)
			}
		})
	}
}
