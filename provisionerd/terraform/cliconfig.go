package terraform

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// cliConfig is Terraform's CLI configuration: the operator's is for init, which alone installs anything; jobs get an
// empty one, because the operator's holds registry credentials.
type cliConfig struct {
	jobFile  string
	initText []byte // the operator's without credentials, or nil
	invalid  error  // why the operator's cannot be used; Terraform, too, would report it at each init
	registries
	concerns []string
	mirrors  []string // folders that providers are linked from
}

func writeCLIConfig(runDir string) (cliConfig, error) {
	c := cliConfig{jobFile: filepath.Join(runDir, "terraformrc"),
		registries: registries{tokens: tokensOfEnvironment(os.Environ())}}
	if os.Getenv(pluginCache) != "" {
		c.concerns = append(c.concerns, sharedPlugins(pluginCache))
	}
	if err := os.WriteFile(c.jobFile, []byte(emptyCLIConfig), 0o644); err != nil {
		return c, fmt.Errorf("write terraform configuration: %w", err)
	}
	theirs := os.Getenv("TF_CLI_CONFIG_FILE")
	if theirs == "" {
		if home, err := os.UserHomeDir(); err == nil {
			theirs = filepath.Join(home, ".terraformrc")
		}
	}
	text, err := os.ReadFile(theirs)
	if err != nil {
		return c, nil //nolint:nilerr // as Terraform does, which only warns of a file that it cannot read
	}
	var concerns []string
	c.initText, c.registries, concerns, c.invalid = takeCredentials(theirs, text, c.tokens)
	c.concerns = append(c.concerns, concerns...)
	if c.invalid != nil {
		return c, nil //nolint:nilerr // init reports it, with the file
	}
	file, diags := new(syntax.Parser).Config(theirs, c.initText)
	if diags.HasErrors() {
		return c, fmt.Errorf("read terraform configuration: %w", diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return c, nil
	}
	for _, installation := range body.Blocks {
		if installation.Type != "provider_installation" {
			continue
		}
		for _, method := range installation.Body.Blocks {
			if dir := stringAttribute(method.Body, "path"); method.Type == "filesystem_mirror" && dir != "" {
				c.mirrors = append(c.mirrors, dir)
			}
		}
	}
	return c, nil
}
