package gateway

import "strings"

// agentName returns [owner/]workspace[.agent] for the ways in which an SSH client may write it: ada/dev.main,
// ada--dev.main or ada+dev.main.
func agentName(user string) string {
	for _, separator := range []string{"/", "--", "+"} {
		if owner, rest, ok := strings.Cut(user, separator); ok {
			return owner + "/" + rest
		}
	}
	return user
}

// short returns the beginning of a name that is too long to be one.
func short(name string) string {
	if len(name) > maxName {
		return name[:maxName] + "…"
	}
	return name
}
