package terraform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// Recover implements job.Executor. It finds the jobs that a predecessor with the same RunDir left behind. Slots on a
// memory file system do not survive a reboot; after one, Recover has only known.
func (e *Executor) Recover(_ context.Context, jobID [16]byte, epoch uint64, known job.Known) (job.Remains, error) {
	dir := e.host.Remains(jobID, epoch)
	found, err := result.StatesIn(filepath.Join(dir, "w"))
	said, dump := result.LastWords(filepath.Join(dir, "w"), sandbox.LastWordsFile)
	outcome, state := tfstate.Settle(result.Newest(known.Checkpoint, append(found, dump)...),
		append(known.Changes, said...), false)
	remains := job.Remains{State: state, Unknown: outcome.Unknown, Tainted: outcome.Tainted}
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return remains, fmt.Errorf("recover job: %w", err)
	}
	return remains, nil
}
