package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"tailscale.com/types/logger"
)

// levelTrace is below slog.LevelDebug, for what the libraries call verbose.
const levelTrace = slog.LevelDebug - 4

// engineLogf routes the libraries' printf logging to log at debug level. They log public keys, addresses and relay
// errors, never secrets.
func engineLogf(log *slog.Logger) logger.Logf {
	return func(format string, args ...any) {
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
