package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/coderd/backup"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxKeyFile bounds a file with state keys, in bytes.
const maxKeyFile = 1 << 16

// stateKeys are the flags that name the keys of the server.
type stateKeys struct{ keys, file string }

func (k *stateKeys) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.keys, "state-encryption-key", "",
		"the server's state keys, as for coder server (prefer the environment variable)")
	cmd.Flags().StringVar(&k.file, "state-encryption-key-file", "",
		"file with those keys (default state-encryption.key in the configuration folder)")
}

// given reports whether the keys are kept elsewhere than in the configuration folder.
func (k *stateKeys) given() bool { return k.keys != "" || k.file != "" }

// path returns the file with the keys.
func (k *stateKeys) path(cmd *cobra.Command) (string, error) {
	if k.file != "" {
		return k.file, nil
	}
	dir := cli.ConfigDir(cmd)
	if dir == "" {
		return "", errNoConfigDir
	}
	return filepath.Join(dir, "state-encryption.key"), nil
}

// read returns the keys and their text.
func (k *stateKeys) read(cmd *cobra.Command) (string, *keyring.Ring, error) {
	if k.keys != "" && k.file != "" {
		return "", nil, fault.New(fault.Invalid,
			"--state-encryption-key and --state-encryption-key-file cannot be combined")
	}
	if k.keys != "" {
		ring, err := keyring.Parse(k.keys)
		return k.keys, ring, err
	}
	path, err := k.path(cmd)
	if err != nil {
		return "", nil, err
	}
	return readKeys(path)
}

// readKeys returns the keys in a file and their text.
func readKeys(path string) (string, *keyring.Ring, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, fault.New(fault.Invalid, "The file with the state keys cannot be read: %w", err).
			WithDetail("Name the right file. Nothing was changed.")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return "", nil, fmt.Errorf("read state keys: %w", err)
	}
	ring, err := keyring.Parse(string(text))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	return string(text), ring, nil
}

// lacking returns a fault if a ring lacks keys of a backup.
func lacking(ring *keyring.Ring, h backup.Header, detail string) error {
	if missing := ring.Missing(h.Keys); len(missing) > 0 {
		return fault.New(fault.Invalid, "The state keys %s, which encrypt a part of the data, are missing.",
			strings.Join(missing, ", ")).WithDetail("%s", detail)
	}
	return nil
}

// newFile creates a file for this account only. It follows no link and replaces nothing.
func newFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fault.New(fault.Conflict, "%s already exists.", path).
			WithDetail("Choose another name, or remove the file first.")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "The file cannot be written: %w", err).
			WithDetail("Choose a folder that exists and that you may write to.")
	}
	return f, nil
}

// fill writes a new file with fn, and removes it if that fails.
func fill(f *os.File, fn func(io.Writer) error) error {
	err := errors.Join(fn(f), f.Sync(), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func backupCmd() *cobra.Command {
	var db adminDatabase
	var keys stateKeys
	var keyFile string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the server's database into a file",
		Long: `Write the server's database into a new file, as it is at this moment. The server may run. The file contains hashes of passwords and
other confidential data, and only this account can read it.

The file does not contain the state keys, and encrypted data cannot be read without them: write them into another file with --key-file,
and keep it in another place.`,
		Example: "  coder server backup coder-2026-11-23.backup --key-file /media/safe/coder.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var text string
			var ring *keyring.Ring
			if keyFile != "" {
				if text, ring, err = keys.read(cmd); err != nil {
					return err
				}
			}
			source, detach, err := db.locate(cmd, attach)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, detach()) }()
			out, err := newFile(args[0])
			if err != nil {
				return err
			}
			var h backup.Header
			err = fill(out, func(w io.Writer) (err error) {
				if h, err = backup.Write(cmd.Context(), source, w); err != nil || keyFile == "" {
					return err
				}
				if err := lacking(ring, h, "Name the server's keys with --state-encryption-key-file. If one is lost for good: coder server keys forget."); err != nil {
					return err
				}
				kept, err := newFile(keyFile)
				if err != nil {
					return err
				}
				return fill(kept, func(w io.Writer) error {
					_, err := io.WriteString(w, strings.TrimSpace(text)+"\n")
					return err
				})
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "Wrote the database as of %s into %s.\n", h.Created.Format(time.RFC3339), args[0])
			switch {
			case keyFile != "":
				fmt.Fprintf(os.Stderr, "Wrote the state keys into %s. Keep the two files in different places.\n",
					keyFile)
			case len(h.Keys) > 0:
				fmt.Fprintf(os.Stderr, "The file does not contain the state keys %s, without which it cannot be restored.\n", strings.Join(h.Keys, ", "))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key-file", "", "new file to write the state keys into")
	keys.flags(cmd)
	db.flag(cmd)
	return cmd
}

func restoreCmd() *cobra.Command {
	var db adminDatabase
	var keys stateKeys
	var keyFile string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the server's database from a file",
		Long: `Restore a file of coder server backup into an empty database, or into the database of a server with --overwrite. Stop all servers of the
database first. The database is either restored completely or left as it is.

--key-file names the file with the state keys that was written with the backup. The keys are put where coder server finds them.
It is not needed if the server has the keys.`,
		Example: "  coder server restore coder-2026-11-23.backup --key-file /media/safe/coder.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			f, err := os.Open(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "The backup cannot be read: %w", err).
					WithDetail("Name a file of coder server backup.")
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return fmt.Errorf("read backup: %w", err)
			}
			if !info.Mode().IsRegular() {
				return fault.New(fault.Invalid, "%s is not a file.", args[0]).
					WithDetail("Name a file of coder server backup.")
			}
			file, err := backup.Check(f, info.Size())
			if err != nil {
				return err
			}
			install, err := keys.restore(cmd, keyFile, file.Header)
			if err != nil {
				return err
			}
			source, detach, err := db.locate(cmd,
				func(cmd *cobra.Command) (string, func() error, error) { return runBuiltIn(cmd, embedded.Start) })
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, detach()) }()
			if err := backup.Restore(cmd.Context(), source, file, overwrite); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "Restored the database as of %s.\n", file.Header.Created.Format(time.RFC3339))
			return install()
		},
	}
	cmd.Flags().StringVar(&keyFile, "key-file", "", "file with the state keys of the backup")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace the data of a server that the database holds")
	keys.flags(cmd)
	db.flag(cmd)
	return cmd
}

// restore checks that the server will have the keys of a backup. install puts those of keyFile, if it is set, where the
// server finds them.
func (k *stateKeys) restore(cmd *cobra.Command, keyFile string, h backup.Header) (install func() error, err error) {
	install = func() error { return nil }
	const detail = "Name the file that was written with the backup with --key-file. Nothing was changed."
	path, err := k.path(cmd)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(path)
	exists := k.given() || !errors.Is(err, fs.ErrNotExist)
	if exists {
		_, ring, err := k.read(cmd)
		if err != nil {
			return nil, err
		}
		if keyFile != "" {
			return install, lacking(ring, h, "The server already has other keys. Add those of --key-file to them, one per line. Nothing was changed.")
		}
		return install, lacking(ring, h, detail)
	}
	if keyFile == "" {
		if len(h.Keys) > 0 {
			return nil, fault.New(fault.Invalid, "The state keys %s, which encrypt a part of the data, are missing.",
				strings.Join(h.Keys, ", ")).WithDetail(detail)
		}
		return install, nil
	}
	text, ring, err := readKeys(keyFile)
	if err != nil {
		return nil, err
	}
	return func() error { return keyring.Install(path, text) }, lacking(ring, h, detail)
}
