package coordinator_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
	_ "pgregory.net/rapid" // registers its flags
)

func TestMain(m *testing.M) {
	// More than rapid's default, since a check takes a millisecond. Flags on the command line take precedence.
	for name, value := range map[string]string{"rapid.checks": "2000", "rapid.steps": "60", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
