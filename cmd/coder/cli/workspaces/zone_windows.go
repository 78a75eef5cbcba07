package workspaces

// systemZone returns UTC: Windows has its own names for zones, so a schedule without a zone is in UTC there.
func systemZone() string { return "UTC" }
