package tailnet

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"tailscale.com/types/logger"
)

// levelTrace is below slog.LevelDebug: what the engine itself calls verbose.
const levelTrace = slog.LevelDebug - 4

// engineLogf routes the engine's printf logging to log at debug level, and shows every line's format to tap first. The
// engine logs public keys, addresses and relay errors, never secrets.
func engineLogf(log *slog.Logger, tap func(format string, args []any)) logger.Logf {
	return func(format string, args ...any) {
		tap(format, args)
		level := slog.LevelDebug
		if strings.HasPrefix(format, "[v") {
			level = levelTrace
		}
		if !log.Enabled(context.Background(), level) {
			return
		}
		log.Log(context.Background(), level, "mesh engine", "line", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
