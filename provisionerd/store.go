package provisionerd

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// provisionersDisk begins the sentences about disks that take no more data.
const provisionersDisk = "The provisioner's disk"

const (
	journalSuffix = ".journal"
	asideSuffix   = ".revoked"
	sourcePrefix  = "source-"
	// keepAside is how long the journal of a revoked lease is kept for the operator.
	keepAside = 7 * 24 * time.Hour
)

// store is the daemon's folder on disk. One process at a time uses it.
type store struct {
	dir  string
	lock *os.File
}

func openStore(dir string) (*store, error) {
	if dir == "" {
		return nil, fault.New(fault.Invalid, "The provisioner needs a folder for its journal")
	}
	// Journals hold Terraform's state.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, disk.Explain(fault.New(fault.Invalid, "The provisioner's folder cannot be created: %w", err),
			provisionersDisk)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, disk.Explain(fault.New(fault.Invalid, "The provisioner's folder cannot be used: %w", err),
			provisionersDisk)
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(fault.New(fault.Conflict, "Another provisioner uses the folder %s: %w", dir, err).
			WithDetail("Give each provisioner on this machine its own name, or its own folder."), lock.Close())
	}
	return &store{dir: dir, lock: lock}, nil
}

// close releases the folder to other processes.
func (s *store) close() error { return s.lock.Close() }

func (s *store) path(key leaseKey) string {
	return filepath.Join(s.dir, fmt.Sprintf("%x-%d%s", key.job[:], key.epoch, journalSuffix))
}

// setAside keeps the journal of a lost lease, and returns its new path.
func (s *store) setAside(key leaseKey) (string, error) {
	aside := strings.TrimSuffix(s.path(key), journalSuffix) + asideSuffix
	if err := os.Rename(s.path(key), aside); err != nil {
		return "", fmt.Errorf("set journal aside: %w", err)
	}
	return aside, nil
}

// remove deletes a journal. A missing journal is not an error.
func (s *store) remove(key leaseKey) error {
	if err := os.Remove(s.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove journal: %w", err)
	}
	return nil
}

// keys lists the journals. It removes old journals that were set aside, and sources that a killed process left behind.
func (s *store) keys() ([]leaseKey, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list journals: %w", err)
	}
	var keys []leaseKey
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), asideSuffix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keepAside {
				if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
					return nil, fmt.Errorf("remove old journal: %w", err)
				}
			}
			continue
		}
		if strings.HasPrefix(e.Name(), sourcePrefix) { // a killed process left it behind
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return nil, fmt.Errorf("remove old source: %w", err)
			}
			continue
		}
		if key, ok := parseKey(e.Name()); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func parseKey(name string) (key leaseKey, ok bool) {
	name, ok = strings.CutSuffix(name, journalSuffix)
	id, epoch, found := strings.Cut(name, "-")
	if !ok || !found {
		return key, false
	}
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != len(key.job) {
		return key, false
	}
	copy(key.job[:], raw)
	key.epoch, err = strconv.ParseUint(epoch, 10, 64)
	return key, err == nil && key.epoch > 0
}
