package users

import (
	"context"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// MinSetupCode is the length of the shortest setup code that an operator may choose, in bytes.
const MinSetupCode = 16

// SetupCode makes a setup code, in groups that a person can type, from a secret that all servers of a deployment
// derive.
func SetupCode(derived [32]byte) secret.Token {
	text := base32.StdEncoding.EncodeToString(derived[:10])
	var groups []string
	for group := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(group))
	}
	return secret.Token(strings.Join(groups, "-"))
}

func isSetupCode(code secret.Token, given string) bool {
	return code != "" && secret.Token(strings.TrimSpace(given)).Matches(code.Hash())
}

func errSetupCode() error {
	return fault.New(fault.Forbidden, "Creating the first user requires the server's setup code.").
		WithDetail("The server prints the code when it starts, and keeps it in the file setup-code of its configuration folder. Send it as setup_code, or give it to coder login with --setup-code.")
}

// AwaitsFirst reports whether the deployment has no users yet.
func (s *Service) AwaitsFirst(ctx context.Context) (bool, error) {
	exists, err := s.db.HasUsers(ctx)
	if err != nil {
		return false, fmt.Errorf("look for users: %w", err)
	}
	return !exists, nil
}
