package workspaces

// systemZone: Windows' names of zones are its own, so a schedule without a zone is in UTC there.
func systemZone() string { return "UTC" }
