package keeper

import "github.com/codermesh/codermesh/v2/internal/secret"

// Scrub does nothing: the variables of this system's processes can change, and Run removes the token from those of the
// agent.
func Scrub(secret.Token) error { return nil }

// Token returns "", because nothing is passed on to a keeper.
func Token() (secret.Token, error) { return "", nil }
