package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// checkSetupCode checks a code that the operator chose.
func checkSetupCode(code string) error {
	if n := len(code); n > 0 && n < users.MinSetupCode {
		return fault.New(fault.Invalid, "--setup-code must have at least %d characters", users.MinSetupCode).
			WithDetail("Generate it with: openssl rand -hex 16")
	}
	return nil
}

// keptCode is the path of a file with the setup code, "" for none.
type keptCode string

// keepSetupCode prints the setup code and stores it for the command line of the same account: only that account reads
// the file. Without a code it removes the file of an earlier start. A server that cannot write to its folder only
// prints it; if greeted is set, the greeting does.
func keepSetupCode(dir string, code secret.Token, greeted bool, log *slog.Logger) (keptCode, error) {
	kept := keptCode(filepath.Join(dir, config.FileSetupCode))
	if code == "" {
		if dir == "" {
			return "", nil
		}
		return "", kept.delete()
	}
	if !greeted {
		fmt.Fprintf(os.Stderr, "The server has no users yet. Creating the first one requires this setup code: %s\n",
			code.Reveal())
	}
	if dir == "" {
		return "", nil
	}
	if err := config.Dir(dir).Write(config.FileSetupCode, code.Reveal()+"\n"); err != nil {
		log.Warn("cannot store the setup code", "path", string(kept), "err", err)
		return "", nil
	}
	return kept, nil
}

func (k keptCode) delete() error {
	if err := os.Remove(string(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the setup code: %w", err)
	}
	return nil
}

// remove deletes the file when the server ends.
func (k keptCode) remove(log *slog.Logger) {
	if k == "" {
		return
	}
	if err := k.delete(); err != nil {
		log.Warn("cannot remove the setup code", "path", string(k), "err", err)
	}
}
