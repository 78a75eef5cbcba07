package hostkeys

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/uuid"
)

// TestLabels checks that each label, and each seed, has a key of its own, however a label is divided into parts.
func TestLabels(t *testing.T) {
	t.Parallel()
	seen := map[string][]string{}
	for _, label := range [][]string{
		nil, {""}, {"", ""}, {"gateway"}, {"gateway", ""}, {"gate", "way"}, {"agent"}, {"agent", "ab", "c"}, {"agent", "a", "bc"}, {"agent", "abc"},
		{"agentabc"}, {"agent", "a\x00\x00\x00\x01b"}, {"agent", "a", "b"},
	} {
		for _, fill := range []byte{1, 2} {
			key := hex.EncodeToString(derive(bytes.Repeat([]byte{fill}, seedSize), label...))
			if other, ok := seen[key]; ok {
				t.Errorf("%q has the key of %q", label, other)
			}
			seen[key] = label
		}
	}
}

// TestAliases: a region calls each user by another name than other regions do, and only the servers know whom it means.
func TestAliases(t *testing.T) {
	t.Parallel()
	keys, others := &Keys{seed: bytes.Repeat([]byte{1}, seedSize)}, &Keys{seed: bytes.Repeat([]byte{2}, seedSize)}
	eu, us, user := uuid.New(), uuid.New(), uuid.New()
	seen := map[uuid.UUID]bool{user: true}
	for _, alias := range []uuid.UUID{keys.Alias(eu, user), keys.Alias(us, user), keys.Alias(eu, uuid.New()), others.Alias(eu, user)} {
		if seen[alias] {
			t.Errorf("%s is the alias of several, or an id", alias)
		}
		seen[alias] = true
	}
	alias := keys.Alias(eu, user)
	if got := keys.User(eu, alias); got != user || keys.Alias(eu, user) != alias {
		t.Errorf("%s is %s, want %s", alias, got, user)
	}
	if keys.User(us, alias) == user || others.User(eu, alias) == user {
		t.Errorf("%s means the user elsewhere, too", alias)
	}
}
