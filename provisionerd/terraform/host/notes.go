package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// note records a job beside its files.
type note struct {
	JobID string `json:"job_id"` // hex
	Epoch uint64 `json:"epoch"`
}

// readProcess reads the note about a process: its identity, and what bubblewrap added.
func readProcess(name string) (sandbox.Process, error) {
	file, err := os.Open(name)
	if err != nil {
		return sandbox.Process{}, fmt.Errorf("read process note: %w", err)
	}
	defer file.Close()
	// The note holds our record, then bubblewrap's. While the process starts, the second is missing or half there.
	var all struct {
		sandbox.Process
		Child int `json:"child-pid"`
	}
	notes := json.NewDecoder(io.LimitReader(file, 1<<16))
	if err := notes.Decode(&all); err != nil || all.PID == 0 {
		return sandbox.Process{}, fmt.Errorf("read process note %s: %w", name,
			cmp.Or(err, errors.New("it names no process")))
	}
	_ = notes.Decode(&all) // without it, the number of process 1 is not known yet
	all.Init = all.Child
	return all.Process, nil
}

// RemoveFile removes a file, unless there is none.
func RemoveFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}
