package users

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// The costs of Argon2id. They are the minimum that OWASP's password storage cheat sheet recommends, to limit memory
// use.
const (
	argonMemory  = 19 * 1024 // KiB
	argonTime    = 2
	argonThreads = 1
	argonSalt    = 16 // bytes
	argonKey     = 32 // bytes
)

const (
	minPassword = 8
	maxPassword = 128 // characters
)

// hash returns the stored form of a password, in PHC format. It waits for the asker's turn.
func (h *hasher) hash(ctx context.Context, asker pair, password string) (string, error) {
	release, err := h.enter(ctx, asker)
	if err != nil {
		return "", err
	}
	defer release()
	salt := make([]byte, argonSalt)
	rand.Read(salt)
	key := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, argonKey)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads, b64.EncodeToString(salt), b64.EncodeToString(key)), nil
}

// verify reports whether a password matches the stored one. An empty hash costs the same time and never matches. The
// caller must hold a turn of the hasher.
func verify(password, stored string) (bool, error) {
	if utf8.RuneCountInString(password) > maxPassword {
		password = password[:maxPassword] // as costly as any other; no account has such a password
		stored = ""
	}
	if stored == "" {
		argon2.IDKey([]byte(password), make([]byte, argonSalt), argonTime, argonMemory, argonThreads, argonKey)
		return false, nil
	}
	var version int
	var memory, time uint32
	var threads uint8
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, fmt.Errorf("read stored password: not argon2id")
	}
	if _, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &memory, &time, &threads); err != nil || version != argon2.Version {
		return false, fmt.Errorf("read stored password's costs: version %d: %w", version, err)
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil {
		return false, fmt.Errorf("read stored password's salt: %w", err)
	}
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil {
		return false, fmt.Errorf("read stored password's key: %w", err)
	}
	got := argon2.IDKey([]byte(password), salt, time, memory, threads, argonKey)
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

// common lists the passwords of at least 8 characters that guessers try first.
var common = map[string]bool{
	"password": true, "password1": true, "password12": true, "password123": true, "password1234": true, "passw0rd": true,
	"p@ssw0rd": true, "p@ssword": true, "12345678": true, "123456789": true, "1234567890": true, "123123123": true,
	"987654321": true, "87654321": true, "qwertyuiop": true, "qwerty123": true, "qwertyui": true, "1q2w3e4r": true,
	"1q2w3e4r5t": true, "1qaz2wsx": true, "qazwsxedc": true, "iloveyou": true, "sunshine": true, "princess": true,
	"football": true, "baseball": true, "superman": true, "trustno1": true, "welcome1": true, "welcome123": true,
	"letmein1": true, "letmein123": true, "admin123": true, "administrator": true, "changeme": true, "changeme123": true,
	"abcd1234": true, "abc12345": true, "asdfghjkl": true, "starwars": true, "computer": true, "secret123": true,
	"codercoder": true, "testtest": true, "test1234": true, "temp1234": true,
}

// checkPassword returns what is wrong with a new password, or "" if it is acceptable.
func checkPassword(password, username, email string) string {
	lower := strings.ToLower(password)
	local, _, _ := strings.Cut(strings.ToLower(email), "@")
	kinds := map[rune]bool{}
	for _, r := range password {
		kinds[r] = true
	}
	switch n := utf8.RuneCountInString(password); {
	case password == "":
		return "is required"
	case n < minPassword:
		return fmt.Sprintf("must have at least %d characters", minPassword)
	case n > maxPassword:
		return fmt.Sprintf("must have at most %d characters", maxPassword)
	case common[lower]:
		return "is too easy to guess"
	case len(kinds) < 4:
		return "must have at least 4 different characters"
	case lower == strings.ToLower(username), lower == strings.ToLower(email), lower == local:
		return "must not be the username or the email address"
	}
	return ""
}
