package account

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

func devicesCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "devices", Aliases: []string{"device"},
		Short: "Manage devices that reach your workspaces with a WireGuard app",
		Long: `Manage phones, tablets and other devices that reach your workspaces with a WireGuard app instead of this program. A device acts as you until it
expires or is removed.`,
		Example: `  coder devices add phone
  coder devices list
  coder devices remove phone`,
	}
	cmd.AddCommand(deviceAddCmd(g), deviceListCmd(g), deviceRenameCmd(g), deviceRemoveCmd(g))
	return cmd
}

// deviceOptions are the flags of `coder devices add`.
type deviceOptions struct {
	publicKey, expires, file string
	region                   string
	qr                       bool
	qrChanged                bool
	lifetime                 time.Duration // what expires means
}

func deviceAddCmd(g *global.Flags) *cobra.Command {
	var opts deviceOptions
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a device, and print its WireGuard configuration",
		Long: `Add a device, and print its WireGuard configuration, also as a QR code on a terminal. The key pair is made here: the server gets the public key
only, and the private key cannot be shown again. With --public-key, for a key pair that you made elsewhere, the configuration has no private key.

Only addresses of workspaces are reached through the configuration, and names are asked for: other traffic of the device does not change.

With --region, the device connects to the gateway of a region that is near it. Such a region can connect as you, to what the device may reach.`,
		Example: `  coder devices add phone
  coder devices add ci --expires 1d --output wg0.conf
  coder devices add tablet --region sydney
  coder devices add router --public-key "$(wg pubkey <private.key)"`,
		Args: flags.Argument("device's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.qrChanged = cmd.Flags().Changed("qr") || cmd.Flags().Changed("no-qr")
			if cmd.Flags().Changed("no-qr") {
				opts.qr = false
			}
			if cmd.Flags().Changed("public-key") && opts.publicKey == "" {
				return exit.Try(fault.New(fault.Invalid, "--public-key is empty"),
					"Name the key, or leave out --public-key to make a pair here")
			}
			return addDevice(g, cmd, args[0], opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.publicKey, "public-key", "", "public key of a pair that you made elsewhere, as `wg pubkey` prints it (default a new pair)")
	f.StringVar(&opts.expires, "expires", "",
		"how long the device may connect, such as 30d or 12h (default as long as the deployment allows)")
	f.StringVar(&opts.region, "region", "", "region to whose gateway the device connects (default the server)")
	f.StringVarP(&opts.file, "output", "o", "",
		"new file for the configuration, which only you can read (default standard output)")
	f.BoolVar(&opts.qr, "qr", true,
		"show the configuration as a QR code, for the app of a phone (default on a terminal)")
	f.Bool("no-qr", false, "show no QR code")
	cmd.MarkFlagsMutuallyExclusive("qr", "no-qr")
	return cmd
}

func addDevice(g *global.Flags, cmd *cobra.Command, name string, opts deviceOptions) (err error) {
	if problem := sshkey.CheckName(name); problem != "" {
		return exit.Try(fault.New(fault.Invalid, "the name %s", problem), "coder devices add phone")
	}
	if opts.lifetime, err = flags.ParseDuration(opts.expires); err != nil {
		return err
	}
	pair, err := pairOf(opts.publicKey)
	if err != nil {
		return err
	}
	if !opts.qrChanged {
		opts.qr = pair.Private != "" && g.Streams().ErrTTY
	}
	if opts.qr && pair.Private == "" {
		return exit.Try(fault.New(fault.Invalid, "--qr needs a private key, which stays where you made it"),
			"Leave out --public-key to make a pair here")
	}
	ctx := cmd.Context()
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	gateway, err := client.WireGuardGateway(ctx)
	if err != nil {
		return err
	}
	if err := chooseGateway(&gateway, opts.region); err != nil {
		return err
	}
	// The file comes first: a device whose private key cannot be kept is useless.
	var file *os.File
	if opts.file != "" {
		if file, err = newPrivateFile(opts.file); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, file.Close())
			if err != nil {
				err = errors.Join(err, os.Remove(opts.file))
			}
		}()
	}
	made, err := client.CreateUserDevice(ctx, sdk.Me, sdk.CreateUserDeviceRequest{
		Name: name, PublicKey: pair.Public.String(), Lifetime: opts.lifetime, Region: opts.region,
	})
	if err != nil {
		return err
	}
	config, err := deviceConfig(gateway, made, pair)
	if err != nil {
		return err
	}
	if file != nil {
		if _, err := file.WriteString(config); err != nil {
			return exit.Try(fmt.Errorf("write the configuration: %w", err), "coder devices remove %s",
				shell.Word(made.Name))
		}
	} else if _, err := fmt.Fprint(g.Streams().Out, config); err != nil {
		return err
	}
	if opts.qr {
		if err := writeQR(tty.Raw(g.Streams().Err), config); err != nil {
			return err
		}
	}
	fmt.Fprintf(g.Streams().Err, "Added the device %s, %s. It expires at %s.\n", made.Name, made.Address,
		made.ExpiresAt.Local().Format("2006-01-02 15:04"))
	return nil
}

// chooseGateway makes the gateway that of a region; "" leaves the server's.
func chooseGateway(gateway *sdk.WireGuardGateway, region string) error {
	var names []string
	for _, at := range gateway.Regions {
		if names = append(names, at.Region); region != "" && strings.EqualFold(at.Region, region) {
			gateway.Address, gateway.PublicKey = at.Address, at.PublicKey
			return nil
		}
	}
	if region == "" && gateway.Enabled {
		return nil
	}
	problem := fault.New(fault.Conflict, "this deployment has no WireGuard gateway that devices could connect to")
	if region != "" {
		problem = fault.New(fault.NotFound, "the region %s has no WireGuard gateway, or is not connected", region)
	}
	if len(names) > 0 {
		return exit.Try(problem, "Name a region that has one with --region: %s", strings.Join(names, ", "))
	}
	return exit.Try(problem, "Ask its operator to set --wireguard-address")
}

// pairOf returns a new key pair, or a public key that the user brings.
func pairOf(public string) (wgquick.Pair, error) {
	if public == "" {
		return wgquick.NewPair()
	}
	key, err := wgquick.ParseKey(strings.TrimSpace(public))
	return wgquick.Pair{Public: key}, err
}

func newPrivateFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // it gets a private key
	if errors.Is(err, fs.ErrExist) {
		return nil, exit.Try(fault.New(fault.Invalid, "the file %s exists, and may have the only copy of a key", path),
			"Choose another name for --output")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot write the file: %w", err)
	}
	return file, nil
}

// uniqueLocal has the addresses that sites choose for themselves (RFC 4193), and meshBits is the length of what one
// site has.
var uniqueLocal = netip.MustParsePrefix("fc00::/7")

const meshBits = 48

// deviceConfig returns the configuration of a device. What the server sends ends up in a file that a program with more
// rights reads, so that it is checked: no value may add a line, and the device sends nothing to the server that is not
// for its mesh.
func deviceConfig(gateway sdk.WireGuardGateway, device sdk.UserDevice, pair wgquick.Pair) (string, error) {
	addr, err := netip.ParseAddr(device.Address)
	if err != nil || addr.Zone() != "" {
		return "", errors.New("the server sent an address that is not one")
	}
	dns, err := netip.ParseAddr(gateway.DNS)
	if err != nil || dns.Zone() != "" {
		return "", errors.New("the server sent a name server that is not an address")
	}
	network, err := netip.ParsePrefix(gateway.Prefix)
	if err != nil {
		return "", errors.New("the server sent a network that is not one")
	}
	// The device sends what goes to the network through the server, and its questions to the name server.
	if !uniqueLocal.Contains(network.Addr()) || network.Bits() < meshBits || network != network.Masked() ||
		!network.Contains(addr) || !network.Contains(dns) {
		return "", fmt.Errorf("the server sent %q for the mesh, which is not a network for its own addresses alone",
			gateway.Prefix)
	}
	peer, err := wgquick.ParseKey(gateway.PublicKey)
	if err != nil {
		return "", errors.New("the server sent a key that is not one")
	}
	if gateway.Address == "" ||
		strings.ContainsFunc(gateway.Address, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }) {
		return "", fmt.Errorf("the server sent %q, which is not a host and a port", gateway.Address)
	}
	return wgquick.Config{
		Private: pair.Private, Address: addr, DNS: dns.String(), MTU: gateway.MTU, Peer: peer.String(),
		AllowedIPs: network.String(), Endpoint: gateway.Address,
	}.Text(), nil
}

// deviceUserFlag adds the flag that names whose devices a command is about.
func deviceUserFlag(cmd *cobra.Command, user *string) {
	cmd.Flags().StringVarP(user, "user", "u", sdk.Me, "owner of the devices; for owners and user admins of the server")
}

func deviceListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.UserDevice]{Columns: []output.Column[sdk.UserDevice]{
		output.Col("name", func(d sdk.UserDevice) string { return d.Name }),
		output.Col("address", func(d sdk.UserDevice) string { return d.Address }),
		output.Col("region", func(d sdk.UserDevice) string { return d.Region }),
		output.Col("last used", func(d sdk.UserDevice) string { return output.AgoPtr(d.LastUsedAt) }),
		output.Col("expires at", deviceExpiry),
		output.Col("created at", func(d sdk.UserDevice) string { return output.Ago(d.CreatedAt) }),
		output.Col("seen at", func(d sdk.UserDevice) string { return d.Endpoint }),
		output.Col("public key", func(d sdk.UserDevice) string { return d.PublicKey }),
		output.Col("id", func(d sdk.UserDevice) string { return d.ID.String() }),
	}, Initial: []string{"name", "address", "last used", "expires at", "created at"}}
	var user string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List devices",
		Example: `  coder devices list
  coder devices list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			list, err := client.UserDevices(cmd.Context(), user)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, list)
		},
	}
	deviceUserFlag(cmd, &user)
	out.Flags(cmd)
	return cmd
}

func deviceExpiry(d sdk.UserDevice) string {
	if !d.ExpiresAt.After(time.Now()) {
		return "expired"
	}
	return d.ExpiresAt.Local().Format("2006-01-02 15:04")
}

func deviceRenameCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "rename NAME NEW-NAME", Short: "Rename a device",
		Example: `  coder devices rename phone old-phone`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, device, err := findDevice(g, cmd, sdk.Me, args[0])
			if err != nil {
				return err
			}
			renamed, err := client.UpdateUserDevice(cmd.Context(), sdk.Me, device.ID, sdk.UpdateUserDeviceRequest{
				Name: args[1],
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The device %s is now called %s.\n", device.Name, renamed.Name)
			return nil
		},
	}
}

func deviceRemoveCmd(g *global.Flags) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm", "delete"}, Short: "Remove a device",
		Long: `Remove a device. It is disconnected at once, and its configuration is useless from then on.`,
		Example: `  coder devices remove phone
  coder devices remove phone --user grace`,
		Args: flags.Argument("device's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, device, err := findDevice(g, cmd, user, args[0])
			if err != nil {
				return err
			}
			if err := client.DeleteUserDevice(cmd.Context(), user, device.ID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Removed the device %s.\n", device.Name)
			return nil
		},
	}
	deviceUserFlag(cmd, &user)
	return cmd
}

// findDevice returns a user's device by its name.
func findDevice(g *global.Flags, cmd *cobra.Command, user, name string) (*sdk.Client, sdk.UserDevice, error) {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return nil, sdk.UserDevice{}, err
	}
	list, err := client.UserDevices(cmd.Context(), user)
	if err != nil {
		return nil, sdk.UserDevice{}, err
	}
	i := slices.IndexFunc(list, func(d sdk.UserDevice) bool { return d.Name == name })
	if i < 0 {
		hint := "coder devices list"
		if user != sdk.Me {
			hint += " --user " + shell.Word(user)
		}
		return nil, sdk.UserDevice{}, exit.Try(fault.New(fault.NotFound, "there is no device with the name %q", name),
			"%s", hint)
	}
	return client, list[i], nil
}
