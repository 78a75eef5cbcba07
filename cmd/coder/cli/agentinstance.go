package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/agent/instance"
	"github.com/codermesh/codermesh/v2/agent/keeper"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// refusedCode is the exit status of the agent of a machine of a cloud whose token the server has refused: the machine
// proves anew who it is.
const refusedCode = 77

// Pauses between the attempts of a machine to be admitted.
const (
	minAdmission = time.Second
	maxAdmission = 15 * time.Second
)

// keepProven is keepAgent for a machine of a cloud, which has no token. It proves who it is until the server admits it,
// and again when the server refuses the token that it got.
func keepProven(ctx context.Context, g *global.Flags, opts agentOptions) error {
	server, err := agentURL(g, opts)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(g.Streams().Err, nil))
	defer holdProgram(log)()
	kept, err := newKeptToken(opts.stateDir, server, opts.auth)
	if err != nil {
		return err
	}
	for {
		token := kept.read(log)
		if token == "" {
			asked, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
			token, err = admit(asked, g, server, opts.auth, log)
			stop()
			if errors.Is(err, context.Canceled) {
				return nil // it was asked to end
			}
			if err != nil {
				return err
			}
			kept.write(token, log)
		}
		code, err := keeper.Run(keeper.Options{Logger: log, Token: token})
		if err != nil || code == 0 {
			return err
		}
		if code != refusedCode {
			return &exit.Error{Code: code}
		}
		log.Info("the server has refused the token of this machine, which proves anew who it is")
		kept.forget(log)
	}
}

// admit asks the cloud for a proof and shows it to the server, until the server accepts one or ctx ends.
func admit(ctx context.Context, g *global.Flags, server *url.URL, auth string, log *slog.Logger) (secret.Token, error) {
	pauses := backoff.Backoff{Min: minAdmission, Max: maxAdmission}
	said := ""
	for {
		token, err := admitOnce(ctx, g, server, auth)
		if err == nil {
			log.Info("the server has admitted this machine", "auth", auth)
			return token, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if reason := err.Error(); reason != said {
			log.Warn("this machine is not admitted, and tries again", "auth", auth, "err", reason)
			said = reason
		}
		if err := pauses.Wait(ctx); err != nil {
			return "", err
		}
	}
}

func admitOnce(ctx context.Context, g *global.Flags, server *url.URL, auth string) (secret.Token, error) {
	proof, err := instance.Prove(ctx, auth, server, instance.Options{
		AWS: os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), Google: os.Getenv("GCE_METADATA_HOST"),
	})
	if err != nil {
		return "", err
	}
	client, err := g.ClientFor(ctx, server, "")
	if err != nil {
		return "", err
	}
	session, err := client.AdmitInstance(ctx, auth, proof)
	if err != nil {
		return "", err
	}
	if session.SessionToken == "" {
		return "", errors.New("the server's answer has no token")
	}
	return secret.Token(session.SessionToken), nil
}

// keptToken is the file that has the machine's token over restarts. Only the agent's account can read it.
type keptToken struct{ path string }

// newKeptToken returns the file for a server and a way to prove who the machine is. stateDir may be empty.
func newKeptToken(stateDir string, server *url.URL, auth string) (keptToken, error) {
	dir, err := filepath.Abs(agent.StateDir(stateDir))
	if err != nil {
		return keptToken{}, fmt.Errorf("resolve the state folder: %w", err)
	}
	sum := sha256.Sum256([]byte(auth + " " + strings.TrimSuffix(server.String(), "/")))
	return keptToken{filepath.Join(dir, "machine-"+hex.EncodeToString(sum[:8]))}, nil
}

// read returns the token, or "". Another account may have written a file in a common folder.
func (k keptToken) read(log *slog.Logger) secret.Token {
	err := proc.Guard(k.path)
	var data []byte
	if err == nil {
		data, err = secret.ReadFile(k.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot read the kept token", "path", k.path, "err", err)
	}
	return secret.Token(strings.TrimSpace(string(data)))
}

// write keeps the token. Without it the machine must be started anew after the agent has ended.
func (k keptToken) write(token secret.Token, log *slog.Logger) {
	dir := filepath.Dir(k.path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = proc.Guard(dir)
	}
	if err == nil {
		if err = os.WriteFile(k.path+".new", []byte(token.Reveal()), 0o600); err == nil {
			err = os.Rename(k.path+".new", k.path)
		}
	}
	if err != nil {
		log.Warn("cannot keep the token: restart the workspace if this machine restarts", "path", k.path, "err", err)
	}
}

func (k keptToken) forget(log *slog.Logger) {
	if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot remove the kept token", "path", k.path, "err", err)
	}
}
