package fault_test

import (
	"errors"
	"fmt"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

func ExampleNew() {
	err := fault.New(fault.Conflict, "The name %q is taken.", "dev").WithDetail("Choose another name.").WithField("name", "is taken")
	fmt.Println(err)
	fmt.Println(err.Code, err.Code.HTTPStatus())
	// Output:
	// The name "dev" is taken. Choose another name.
	// conflict 409
}

// A %w verb keeps the cause for the log. Errors without a fault are internal.
func ExampleCodeOf() {
	down := errors.New("dial unix /run/db: connection refused")
	err := fmt.Errorf("list workspaces: %w", fault.New(fault.Unavailable, "The database is not available: %w", down))
	fmt.Println(fault.CodeOf(err), errors.Is(err, down))
	fmt.Println(fault.CodeOf(down))
	// Output:
	// unavailable true
	// internal
}
