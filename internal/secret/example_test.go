package secret_test

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// A token prints as a fingerprint, wherever it ends up. The database stores its hash.
func ExampleToken() {
	token := secret.Token("correct horse battery staple")
	stored := token.Hash()

	fmt.Println("presented:", token)
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	logger.Info("signed in", "token", token)
	fmt.Println(token.Matches(stored), secret.Token("a guess").Matches(stored))
	// Output:
	// presented: token(c4bbcb1f)
	// level=INFO msg="signed in" token=token(c4bbcb1f)
	// true false
}
