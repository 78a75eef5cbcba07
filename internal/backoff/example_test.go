package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

func ExampleBackoff() {
	refused := errors.New("connection refused")
	tries := 0
	dial := func() error {
		if tries++; tries < 3 {
			return refused
		}
		return nil
	}
	retry := backoff.Backoff{Min: time.Millisecond, Max: time.Second}
	for dial() != nil {
		if err := retry.Wait(context.Background()); err != nil {
			fmt.Println("canceled:", err)
			return
		}
	}
	fmt.Println("connected after", tries, "tries")
	// Output: connected after 3 tries
}
