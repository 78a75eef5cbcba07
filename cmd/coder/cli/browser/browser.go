// Package browser opens addresses in programs of the user's desktop. It knows no server.
package browser

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

// Open opens a page in the user's browser, or an address in the program that is registered for its scheme. It reports
// whether the desktop's program for that was started. It does not wait: some of these programs run as long as the
// browser. On a machine without a desktop it does nothing: a browser on a text terminal would take the terminal away.
func Open(ctx context.Context, page string) bool {
	ctx = context.WithoutCancel(ctx) // the browser outlives the command
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.CommandContext(ctx, "open", page)
	case "windows":
		cmd = exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", page)
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return false
		}
		cmd = exec.CommandContext(ctx, "xdg-open", page)
	}
	if err := cmd.Start(); err != nil {
		return false
	}
	return cmd.Process.Release() == nil
}
