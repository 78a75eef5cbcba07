package account

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// slowerBy is how much longer the program waits between questions once the server says slow_down (RFC 8628, 3.5).
const slowerBy = 5 * time.Second

// device waits until a user enters its code on the server's page, in a browser on any machine.
type device struct{ sdk.LoginDevice }

// newDevice asks the server for a code.
func newDevice(ctx context.Context, client *sdk.Client) (device, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	got, err := client.LoginDevice(ctx, sdk.LoginDeviceRequest{Host: host})
	return device{got}, err
}

func (d device) instructions() string {
	return fmt.Sprintf("Open this page in a browser, on any device:\n\n  %s\n\nand enter this code, within %d minutes:\n\n  %s\n", d.VerificationURI, d.ExpiresIn/60, d.UserCode)
}

// session asks the server until the user has answered, the code has expired, or ctx ends. Failures to ask are tried
// again.
func (d device) session(ctx context.Context, client *sdk.Client) result {
	every := time.Duration(max(d.Interval, 1)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.ExpiresIn)*time.Second)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return result{err: expired(ctx, client)}
		case <-time.After(every):
		}
		got, err := client.LoginDeviceToken(ctx, sdk.LoginDeviceTokenRequest{DeviceCode: d.DeviceCode})
		f := fault.As(err)
		switch {
		case err == nil:
			return result{token: secret.Token(got.SessionToken)}
		case f == nil, f.Code == fault.Unavailable, f.Detail == "authorization_pending":
		case f.Detail == "slow_down":
			every += slowerBy
		case f.Detail == "expired_token":
			return result{err: expired(ctx, client)}
		case f.Detail == "access_denied":
			return result{err: fault.New(fault.Forbidden, "the sign-in was declined")}
		default:
			return result{err: err}
		}
	}
}

// expired returns why the program no longer waits: the code has expired, or the user has ended the command.
func expired(ctx context.Context, client *sdk.Client) error {
	if err := context.Cause(ctx); errors.Is(err, context.Canceled) {
		return err
	}
	return exit.Try(fault.New(fault.Unauthenticated, "the code has expired"), "coder login %s",
		shell.Word(client.URL().String()))
}

// loginWithCode signs in with a code alone, also without a terminal.
func loginWithCode(ctx context.Context, g *global.Flags, client *sdk.Client) error {
	d, err := newDevice(ctx, client)
	if err != nil {
		return err
	}
	fmt.Fprintln(g.Streams().Err, d.instructions())
	got := d.session(ctx, client)
	if got.err != nil {
		return got.err
	}
	return storeSession(ctx, g, client.WithToken(got.token))
}
