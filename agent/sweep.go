package agent

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/internal/scratch"
)

// ProgramDirEnv names the folder that the start script made for the agent's program.
const ProgramDirEnv = "CODER_AGENT_PROGRAM_DIR"

// sweep removes the temporary folders that killed agents, start scripts and commands of this account left on this
// machine.
func sweep(log *slog.Logger) {
	parents := []string{os.TempDir()}
	if dir := os.Getenv(ProgramDirEnv); dir != "" && filepath.Dir(dir) != parents[0] {
		parents = append(parents, filepath.Dir(dir))
	}
	for _, parent := range parents {
		if err := scratch.Sweep(parent, os.Geteuid()); err != nil {
			log.Warn("cannot remove temporary folders of ended agents", "err", err)
		}
	}
}
