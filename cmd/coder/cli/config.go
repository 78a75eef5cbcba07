package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files of the configuration folder. Other programs read them too.
const (
	fileURL     = "url"
	fileSession = "session"
)

// configDir is the folder that holds the stored session.
type configDir string

// openConfig names the folder; it need not exist yet.
func openConfig(flag string) (configDir, error) {
	if flag != "" {
		return configDir(flag), nil
	}
	if base := os.Getenv("XDG_CONFIG_HOME"); base != "" {
		return configDir(filepath.Join(base, "coderv2")), nil
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder (set CODER_CONFIG_DIR): %w", err)
	}
	return configDir(filepath.Join(base, "coderv2")), nil
}

// read returns a file's text, "" when it does not exist.
func (d configDir) read(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(string(d), name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read stored %s: %w", name, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// write stores a file, whole or not at all, readable by its owner only.
func (d configDir) write(name, text string) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the configuration folder: %w", err)
	}
	return writeFile(filepath.Join(string(d), name), []byte(text), 0o600)
}

// remove deletes a file. One that does not exist is fine.
func (d configDir) remove(name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stored %s: %w", name, err)
	}
	return nil
}

// writeFile replaces a file, whole or not at all.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(temp.Name()) // nothing is there after the rename
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Chmod(mode), temp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
