//go:build unix

package workspaces

import (
	"os"
	"strings"
)

// systemZone returns the time zone that /etc/localtime links to, else the one in /etc/timezone, else UTC.
func systemZone() string {
	if target, err := os.Readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
			return name
		}
	}
	if text, err := os.ReadFile("/etc/timezone"); err == nil {
		if name := strings.TrimSpace(string(text)); name != "" {
			return name
		}
	}
	return "UTC"
}
