//go:build darwin || linux

package autostart

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
)

// label names the service for launchd.
const label = "codermesh-agent"

// plist returns the text of the service's property list: launchd.plist(5).
func plist(o Options, env func(string) (string, bool)) string {
	var b strings.Builder
	text := func(kind, value string) {
		b.WriteString("<" + kind + ">")
		_ = xml.EscapeText(&b, []byte(value)) // a Builder takes everything
		b.WriteString("</" + kind + ">\n")
	}
	b.WriteString(xml.Header + `<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">` +
		"\n<!-- Made by coder agent install. -->\n<plist version=\"1.0\">\n<dict>\n")
	for _, pair := range [][2]string{
		{"Label", label}, {"WorkingDirectory", o.Home}, {"StandardErrorPath", filepath.Join(o.Folder, "agent.log")},
	} {
		text("key", pair[0])
		text("string", pair[1])
	}
	if o.Machine {
		text("key", "UserName")
		text("string", o.Account)
	}
	text("key", "ProgramArguments")
	b.WriteString("<array>\n")
	for _, arg := range append([]string{o.program()}, o.arguments()...) {
		text("string", arg)
	}
	b.WriteString("</array>\n")
	text("key", "EnvironmentVariables")
	b.WriteString("<dict>\n")
	for _, name := range proxyVariables {
		if value, ok := env(name); ok && !strings.ContainsFunc(value, isControl) {
			text("key", name)
			text("string", value)
		}
	}
	b.WriteString("</dict>\n")
	text("key", "RunAtLoad")
	b.WriteString("<true/>\n")
	// The keeper restarts the agent. An agent that the server refuses has nothing to come back for.
	text("key", "KeepAlive")
	b.WriteString("<dict>\n")
	text("key", "Crashed")
	fmt.Fprintln(&b, "<true/>\n</dict>\n</dict>\n</plist>")
	return b.String()
}
