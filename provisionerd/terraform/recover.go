package terraform

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/provisionerd/job"
	"github.com/codermesh/codermesh/provisionerd/tfstate"
)

// leftFor is how long the remains of a job wait for Recover.
const leftFor = 14 * 24 * time.Hour

// putAside moves what a killed predecessor left in its slots to <run>/left/<job>-<epoch>, and ends the processes it left.
func (e *Executor) putAside() error {
	left := filepath.Join(e.runDir, "left")
	if err := os.MkdirAll(left, 0o700); err != nil {
		return fmt.Errorf("put aside: %w", err)
	}
	if err := removeOld(left); err != nil {
		return err
	}
	entries, err := os.ReadDir(e.runDir)
	if err != nil {
		return fmt.Errorf("put aside: %w", err)
	}
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), "s")
		if _, err := strconv.Atoi(number); !ok || err != nil {
			continue
		}
		if p, err := readProcess(filepath.Join(e.runDir, "p"+number)); err == nil {
			killGroup(p)
		}
		dir := filepath.Join(e.runDir, entry.Name())
		beside := func(kind string) string { return filepath.Join(e.runDir, kind+number) }
		if text, err := os.ReadFile(beside("j")); err == nil {
			var n note
			if err := json.Unmarshal(text, &n); err == nil && n.JobID != "" {
				to := filepath.Join(left, remainsName(n.JobID, n.Epoch))
				if err := errors.Join(os.RemoveAll(to), os.Rename(dir, to)); err != nil {
					return fmt.Errorf("put aside: %w", err)
				}
			}
		}
		err := errors.Join(os.RemoveAll(dir), removeFile(beside("j")), removeFile(beside("p")))
		if err != nil {
			return fmt.Errorf("put aside: %w", err)
		}
	}
	return nil
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

func remainsName(jobID string, epoch uint64) string {
	return jobID + "-" + strconv.FormatUint(epoch, 10)
}

// Recover implements job.Executor. It knows the jobs that a predecessor with the same RunDir left; a slot on a memory file
// system does not outlive the host, and then what is known is all there is.
func (e *Executor) Recover(_ context.Context, jobID [16]byte, epoch uint64, known job.Known) (job.Remains, error) {
	dir := filepath.Join(e.runDir, "left", remainsName(hex.EncodeToString(jobID[:]), epoch))
	found, err := statesIn(filepath.Join(dir, "w"))
	outcome, state := tfstate.Settle(newestOf(known.Checkpoint, found...), known.Changes, false)
	remains := job.Remains{State: state, Unknown: outcome.Unknown, Tainted: outcome.Tainted}
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return remains, fmt.Errorf("recover job: %w", err)
	}
	return remains, nil
}

// statesIn reads the states of a working folder, none when there is no such folder.
func statesIn(dir string) ([][]byte, error) {
	f, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.close()
	return f.states()
}
