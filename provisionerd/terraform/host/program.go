package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
	install "github.com/hashicorp/hc-install"
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"
	"github.com/hashicorp/hc-install/src"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// minVersion is the oldest Terraform and OpenTofu with `init -json`.
var minVersion = version.Must(version.NewVersion("1.9.0"))

// registryVersion is the oldest Terraform that evaluates the right operand of || and && only if needed, which modules
// of the public registry rely on.
var registryVersion = version.Must(version.NewVersion("1.12.0"))

// tooNew is the first release that may change the format of the state and of the output.
var tooNew = version.Must(version.NewVersion("2.0.0"))

const (
	installTimeout = 5 * time.Minute
	versionTimeout = 30 * time.Second
)

// howToGet is the remedy in errors about a missing or old program.
const howToGet = "install Terraform or OpenTofu 1.9 or newer, below 2.0 (https://opentofu.org/docs/intro/install) " +
	"and put it on PATH, " +
	"or start with --install-terraform to download it"

// Program is the program that runs templates.
type Program struct {
	path    string
	Product string // "terraform" or "tofu"
	Version string
}

// Name returns product and version: "terraform 1.11.4".
func (b Program) Name() string { return b.Product + " " + b.Version }

// Concern returns which templates may not work with this version and what to do about it, without a full stop, or "".
func (b Program) Concern() string {
	found, err := version.NewVersion(b.Version)
	if b.Product != "terraform" || err != nil || found.Core().GreaterThanOrEqual(registryVersion) {
		return ""
	}
	return "Terraform " + b.Version + " is older than 1.12: the import of templates whose modules of the public " +
		"registry need 1.12 fails, and all others work. For those, install Terraform 1.12 or newer in its place, or " +
		"name its path with --terraform (CODER_TERRAFORM_BINARY), and restart the server or the provisioner"
}

// FindTerraform returns the program at path, else in PATH, else installed earlier in dir, else downloads it there if
// allowed.
func FindTerraform(ctx context.Context, path string, download bool, dir string, log *slog.Logger) (Program, error) {
	if path == "" {
		for _, name := range []string{"terraform", "tofu", filepath.Join(dir, "terraform")} {
			if found, err := exec.LookPath(name); err == nil {
				path = found
				break
			}
		}
	}
	if path == "" {
		if !download {
			return Program{}, fault.New(fault.Unavailable, "no terraform or tofu program was found").
				WithDetail("%s", howToGet)
		}
		installed, err := installBinary(ctx, dir, log)
		if err != nil {
			return Program{}, err
		}
		path = installed
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return Program{}, fmt.Errorf("find terraform: %w", err)
	}
	return askVersion(ctx, path)
}

func askVersion(ctx context.Context, path string) (Program, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "-json")
	cmd.Env = []string{"CHECKPOINT_DISABLE=1", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		return Program{}, fault.New(fault.Unavailable, "%s does not run: %w", path, err).WithDetail("%s", howToGet)
	}
	var answer struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return Program{}, fault.New(fault.Unavailable, "%s is not Terraform: %w", path, err).WithDetail("%s", howToGet)
	}
	found, err := version.NewVersion(answer.Version)
	if err != nil || found.Core().LessThan(minVersion) {
		return Program{}, fault.New(fault.Unavailable, "%s is version %q, which is too old", path, answer.Version).
			WithDetail("%s", howToGet)
	}
	if found.Core().GreaterThanOrEqual(tooNew) {
		return Program{}, fault.New(fault.Unavailable, "%s is version %q, which is too new and untested", path,
			answer.Version).WithDetail("%s", howToGet)
	}
	name := "terraform"
	if strings.Contains(filepath.Base(path), "tofu") {
		name = "tofu"
	}
	return Program{path: path, Product: name, Version: found.String()}, nil
}

func installBinary(ctx context.Context, dir string, log *slog.Logger) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("install terraform: %w", err)
	}
	log.Info("downloading Terraform, once", "path", dir)
	began := time.Now()
	installer := install.NewInstaller()
	path, err := installer.Ensure(ctx, []src.Source{&releases.LatestVersion{
		Product:    product.Terraform,
		InstallDir: dir,
		Timeout:    installTimeout,
	}})
	if err != nil {
		// A half-written program must not be found the next time.
		if rerr := os.Remove(filepath.Join(dir, "terraform")); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return "", fault.New(fault.Unavailable, "Terraform could not be downloaded: %w", err).
			WithDetail("start again when this machine reaches releases.hashicorp.com, or install Terraform or " +
				"OpenTofu 1.9 or newer, below 2.0, and put it on PATH")
	}
	log.Info("downloaded Terraform", "path", path, "duration", time.Since(began))
	return path, nil
}
