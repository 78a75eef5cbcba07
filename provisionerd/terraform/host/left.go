package host

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// putAside moves what a killed predecessor left in its slots to <run>/left/<job>-<epoch>, and ends the processes it
// left.
func (h *Host) putAside() error {
	left := filepath.Join(h.runDir, leftDir)
	if err := os.MkdirAll(left, 0o700); err != nil {
		return fmt.Errorf("put aside: %w", err)
	}
	if err := removeOld(left); err != nil {
		return err
	}
	entries, err := os.ReadDir(h.runDir)
	if err != nil {
		return fmt.Errorf("put aside: %w", err)
	}
	patience := time.NewTimer(h.opts.LastWords + 5*time.Second)
	defer patience.Stop()
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), "s")
		if _, err := strconv.Atoi(number); !ok || err != nil {
			continue
		}
		if p, err := readProcess(filepath.Join(h.runDir, "p"+number)); err == nil && p.Namespaces {
			letSave(p, patience.C)
		}
		if p, err := readProcess(filepath.Join(h.runDir, "p"+number)); err == nil {
			sandbox.KillGroup(p)
		}
		dir := filepath.Join(h.runDir, entry.Name())
		beside := func(kind string) string { return filepath.Join(h.runDir, kind+number) }
		if text, err := os.ReadFile(beside("j")); err == nil {
			var n note
			if err := json.Unmarshal(text, &n); err == nil && n.JobID != "" {
				to := filepath.Join(left, remainsName(n.JobID, n.Epoch))
				if err := errors.Join(os.RemoveAll(filepath.Join(dir, filesDir)), os.RemoveAll(to),
					os.Rename(dir, to)); err != nil {
					return fmt.Errorf("put aside: %w", err)
				}
			}
		}
		err := errors.Join(os.RemoveAll(dir), RemoveFile(beside("j")), RemoveFile(beside("p")))
		if err != nil {
			return fmt.Errorf("put aside: %w", err)
		}
	}
	return nil
}

// letSave waits until the program in a killed daemon's sandbox has ended: Terraform was interrupted when the daemon
// died, and saves its state.
func letSave(p sandbox.Process, enough <-chan time.Time) {
	here, err := sandbox.Identify(os.Getpid())
	if err != nil || here.Boot != p.Boot || p.Init <= 1 {
		return // it ended with the machine
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := sandbox.Identify(p.Init); err != nil {
			return
		}
		select {
		case <-enough:
			return
		case <-again.C:
		}
	}
}

func removeOld(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove old files: %w", err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < leftFor {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove old files: %w", err)
		}
	}
	return nil
}

// Remains returns the folder with what a killed executor's job left, which may not exist.
func (h *Host) Remains(jobID [16]byte, epoch uint64) string {
	return filepath.Join(h.runDir, leftDir, remainsName(hex.EncodeToString(jobID[:]), epoch))
}

func remainsName(jobID string, epoch uint64) string {
	return jobID + "-" + strconv.FormatUint(epoch, 10)
}
