package terraform_test

// attackers are programs that tests run inside sandboxes, by the command of this program that runs each.
var attackers = map[string]func(args []string) error{
	"attack-calls": func(args []string) error { return attackCalls(args[0]) },
	"confine":      func(args []string) error { return confine(args[0]) },
	"leave-ipc":    leaveIPC,
	"leave-queue":  leaveQueue,
	"try-call":     func(args []string) error { return tryCall(args[0]) },
}
