// Package config provides the configuration folder: the stored session and files beside it, each written atomically. It
// knows no server.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files of the configuration folder, which other programs read, too.
const (
	FileURL     = "url"
	FileSession = "session"
	// FileSetupCode is what a server without users leaves for the command line of its own account.
	FileSetupCode = "setup-code"
	// FileCompletions holds names that shells completed.
	FileCompletions = "completions"
)

// Dir is the folder that holds the stored session.
type Dir string

// Open returns the folder that the flag names, or else the default one. The folder need not exist.
func Open(flag string) (Dir, error) {
	if flag != "" {
		return Dir(flag), nil
	}
	if base := os.Getenv("XDG_CONFIG_HOME"); base != "" {
		return Dir(filepath.Join(base, "coderv2")), nil
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder (set CODER_CONFIG_DIR): %w", err)
	}
	return Dir(filepath.Join(base, "coderv2")), nil
}

// Read returns a file's text, or "" if the file does not exist.
func (d Dir) Read(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(string(d), name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read stored %s: %w", name, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// Write replaces a file atomically. Only its owner can read it.
func (d Dir) Write(name, text string) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the configuration folder: %w", err)
	}
	return WriteFile(filepath.Join(string(d), name), []byte(text), 0o600)
}

// Remove deletes a file, if it exists.
func (d Dir) Remove(name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stored %s: %w", name, err)
	}
	return nil
}

// WriteFile replaces a file atomically.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(temp.Name()) // the file is gone after the rename
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Chmod(mode), temp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
