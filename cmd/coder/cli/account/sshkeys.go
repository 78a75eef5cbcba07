package account

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
)

// maxKeyFile bounds what is read of a file, in bytes. No key takes as much, so that a cut file is refused.
const maxKeyFile = 64 << 10

func sshKeyCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ssh-key", Aliases: []string{"ssh-keys"}, Short: "Manage the public SSH keys with which you sign in",
		Long: `Manage public SSH keys. The server's SSH gateway signs in the user who has added the key of a connection. "coder publickey" prints another
key: the one that your workspaces use for git.`,
		Example: `  coder ssh-key add ~/.ssh/id_ed25519.pub
  coder ssh-key list
  coder ssh-key regions laptop frankfurt
  coder ssh-key remove laptop`,
	}
	cmd.AddCommand(sshKeyAddCmd(g), sshKeyListCmd(g), sshKeyRegionsCmd(g), sshKeyRemoveCmd(g))
	return cmd
}

func sshKeyAddCmd(g *global.Flags) *cobra.Command {
	var name, lifetime string
	var regions []string
	cmd := &cobra.Command{
		Use:   "add [FILE|-]",
		Short: "Add a public SSH key to your account",
		Long: `Add a public SSH key to your account, from a file or, for "-", from standard input. Without an argument, it is the only public key in ~/.ssh
with a usual name, such as id_ed25519.pub. A key belongs to one account. Private keys are refused before anything is sent.

Keys can be of the types ssh-ed25519, ecdsa-sha2-nistp256, -nistp384 and -nistp521, ssh-rsa with at least 3072 bits, and those of security
keys: sk-ssh-ed25519@openssh.com and sk-ecdsa-sha2-nistp256@openssh.com.

The key signs in at the server. --region also allows it at the SSH gateway of a region, which you then trust as "coder ssh-key regions" says.`,
		Example: `  coder ssh-key add
  coder ssh-key add ~/.ssh/work.pub --name work --lifetime 90d
  coder ssh-key add --region frankfurt
  ssh-add -L | head -n 1 | coder ssh-key add -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := sdk.CreateUserSSHKeyRequest{Name: name}
			if err := checkSSHKeyFlags(cmd, name, lifetime, &req.Lifetime); err != nil {
				return err
			}
			if cmd.Flags().Changed("region") {
				req.Regions = named(regions)
			}
			file, text, err := readPublicKey(g, args)
			if err != nil {
				return err
			}
			if req.PublicKey, err = checkedKey(file, text, "coder ssh-key add"); err != nil {
				return err
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			made, err := client.CreateUserSSHKey(cmd.Context(), sdk.Me, req)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Added the SSH key %s, %s. %s\n", made.Name, made.Fingerprint, lasts(made))
			if len(made.Regions) > 0 {
				fmt.Fprintln(g.Streams().Err, where(made))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&name, "name", "n", "", "name of the key (default its comment)")
	cmd.Flags().StringVar(&lifetime, "lifetime", "",
		"lifetime of the key, such as 90d or 12h (default the longest that the server allows, which may be unlimited)")
	cmd.Flags().StringSliceVar(&regions, "region", nil, `name of a region at which the key may sign in, too; "none" for none (default what the server sets for new keys, which is none unless it does)`)
	return cmd
}

// named returns the regions that a user named: an empty list for "none".
func named(regions []string) []string {
	if len(regions) == 1 && regions[0] == "none" {
		return []string{}
	}
	return append([]string{}, regions...)
}

// where says at which regions a key may sign in.
func where(k sdk.UserSSHKey) string {
	if len(k.Regions) == 0 {
		return "It may sign in at no region."
	}
	return "It may sign in at these regions, too: " + strings.Join(k.Regions, ", ") + "."
}

func sshKeyRegionsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "regions {NAME|FINGERPRINT} {REGION...|none}",
		Short: "Set the regions at which a public SSH key may sign in",
		Long: `Set the regions at whose SSH gateways a key of yours may sign in, in place of those before; "none" for none. The server always accepts it.

A region cannot prove to the server that you came. For this key the server believes it: a region in the wrong hands could connect to your workspaces as
you, with no other rights. "coder wsproxy ls" lists regions for administrators; the account page shows those with an SSH gateway.`,
		Example: `  coder ssh-key regions laptop frankfurt
  coder ssh-key regions laptop frankfurt sydney
  coder ssh-key regions laptop none`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			key, err := findSSHKey(cmd.Context(), client, sdk.Me, args[0])
			if err != nil {
				return err
			}
			changed, err := client.UpdateUserSSHKey(cmd.Context(), sdk.Me, key.ID, sdk.UpdateUserSSHKeyRequest{
				Regions: named(args[1:]),
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Changed the SSH key %s. %s\n", changed.Name, where(changed))
			return nil
		},
	}
	return cmd
}

// findSSHKey returns the key of a user that has a name or a fingerprint.
func findSSHKey(ctx context.Context, client *sdk.Client, user, reference string) (sdk.UserSSHKey, error) {
	keys, err := client.UserSSHKeys(ctx, user)
	if err != nil {
		return sdk.UserSSHKey{}, err
	}
	for _, k := range keys {
		if k.Name == reference || k.Fingerprint == reference {
			return k, nil
		}
	}
	hint := listKeysOf(user)
	return sdk.UserSSHKey{}, exit.Try(fault.New(fault.NotFound, "there is no SSH key with the name or fingerprint %q",
		reference), "%s", hint)
}

// checkSSHKeyFlags checks the flags of a new key. An empty lifetime is refused: a script with an unset variable must
// not add a key that never ends.
func checkSSHKeyFlags(cmd *cobra.Command, name, lifetime string, d *time.Duration) (err error) {
	if cmd.Flags().Changed("lifetime") && lifetime == "" {
		return exit.Try(fault.New(fault.Invalid, "--lifetime is empty, and would not limit the key"),
			"Name a duration such as 90d, or leave out --lifetime")
	}
	if problem := sshkey.CheckName(name); cmd.Flags().Changed("name") && problem != "" {
		return exit.Try(fault.New(fault.Invalid, "--name %s", problem), "Choose a name such as laptop")
	}
	*d, err = flags.ParseDuration(lifetime)
	return err
}

// lasts says how long a key can be used.
func lasts(k sdk.UserSSHKey) string {
	if k.ExpiresAt == nil {
		return "It does not expire."
	}
	return "It expires at " + k.ExpiresAt.Local().Format("2006-01-02 15:04") + "."
}

// readPublicKey returns the text of the named file, of standard input for "-", or else of the user's only public key;
// file is "-" or its path.
func readPublicKey(g *global.Flags, args []string) (file, text string, err error) {
	if len(args) == 1 && args[0] == "-" {
		data, err := io.ReadAll(io.LimitReader(g.Streams().In, maxKeyFile))
		if err != nil {
			return "", "", fmt.Errorf("read standard input: %w", err)
		}
		return "-", string(data), nil
	}
	if len(args) == 1 {
		file = args[0]
	} else if file, err = onlyPublicKey("ssh-keygen -t ed25519", "coder ssh-key add"); err != nil {
		return "", "", err
	}
	data, err := readStart(file)
	if err != nil {
		// The error does not repeat the path: it may be a key that was given instead of a file.
		return "", "", exit.Try(fault.New(fault.Invalid, "cannot read the file of the public key: %w", cause(err)),
			"ls ~/.ssh/*.pub")
	}
	return file, string(data), nil
}

// readStart reads as much of a file as a key can take.
func readStart(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKeyFile))
}

// cause returns an error of the system without the path that it is about.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// usualKeys are the names under which ssh-keygen stores public keys.
var usualKeys = []string{"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub", "id_ed25519_sk.pub", "id_ecdsa_sk.pub"}

// onlyPublicKey returns the public key in ~/.ssh with a usual name, if there is exactly one. hint is a command that
// makes one, and verb takes one of several.
func onlyPublicKey(hint, verb string) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", exit.Try(fault.New(fault.Invalid, "cannot find your home folder: %w", err),
			"Name the file of the public key")
	}
	var found []string
	for _, name := range usualKeys {
		path := filepath.Join(home, ".ssh", name)
		if _, err := os.Stat(path); err == nil {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 0:
		return "", exit.Try(fault.New(fault.Invalid, "there is no public key with a usual name in %s",
			filepath.Join(home, ".ssh")), "%s", hint)
	case 1:
		return found[0], nil
	}
	return "", exit.Try(fault.New(fault.Invalid, "there are several public keys: %s", strings.Join(found, ", ")),
		"%s %s", verb, shell.Word(found[0]))
}

// checkedKey returns a key to send: a private key, and whatever else a user named by mistake, stays on this machine.
// command is what takes a file.
func checkedKey(file, text, command string) (string, error) {
	_, err := sshkey.Parse(text)
	refused := fault.As(err)
	if refused == nil {
		return strings.TrimSpace(text), err
	}
	hint := refused.Detail
	if public := file + ".pub"; file != "-" {
		if _, err := os.Stat(public); err == nil {
			hint = command + " " + shell.Word(public)
		}
	}
	return "", exit.Try(fault.New(fault.Invalid, "%s", refused.Message), "%s", hint)
}

// sshKeyUserFlag adds the flag that names whose keys a command is about.
func sshKeyUserFlag(cmd *cobra.Command, user *string) {
	cmd.Flags().StringVarP(user, "user", "u", sdk.Me, "owner of the keys; for owners and user admins of the server")
}

func sshKeyListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.UserSSHKey]{Columns: []output.Column[sdk.UserSSHKey]{
		output.Col("name", func(k sdk.UserSSHKey) string { return k.Name }),
		output.Col("type", func(k sdk.UserSSHKey) string { return k.Type }),
		output.Col("fingerprint", func(k sdk.UserSSHKey) string { return k.Fingerprint }),
		output.Col("regions", func(k sdk.UserSSHKey) string { return strings.Join(k.Regions, ", ") }),
		output.Col("last used", func(k sdk.UserSSHKey) string { return output.AgoPtr(k.LastUsedAt) }),
		output.Col("expires at", expiry),
		output.Col("created at", func(k sdk.UserSSHKey) string { return output.Ago(k.CreatedAt) }),
		output.Col("id", func(k sdk.UserSSHKey) string { return k.ID.String() }),
	}, Initial: []string{"name", "type", "fingerprint", "last used", "expires at", "regions", "created at"}}
	var user string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List public SSH keys",
		Example: `  coder ssh-key list
  coder ssh-key list -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			keys, err := client.UserSSHKeys(cmd.Context(), user)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, keys)
		},
	}
	sshKeyUserFlag(cmd, &user)
	out.Flags(cmd)
	return cmd
}

// expiry formats when a key expires.
func expiry(k sdk.UserSSHKey) string {
	switch {
	case k.ExpiresAt == nil:
		return "never"
	case !k.ExpiresAt.After(time.Now()):
		return "expired"
	}
	return k.ExpiresAt.Local().Format("2006-01-02 15:04")
}

func sshKeyRemoveCmd(g *global.Flags) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "remove {NAME|FINGERPRINT}", Aliases: []string{"rm", "delete"}, Short: "Remove a public SSH key",
		Long: `Remove a public SSH key. From then on it signs in no user. Its owner can add it again.`,
		Example: `  coder ssh-key remove laptop
  coder ssh-key remove laptop --user grace`,
		Args: flags.Argument("key's name or fingerprint"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			key, err := findSSHKey(cmd.Context(), client, user, args[0])
			if err != nil {
				return err
			}
			if err := client.DeleteUserSSHKey(cmd.Context(), user, key.ID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Removed the SSH key %s, %s.\n", key.Name, key.Fingerprint)
			return nil
		},
	}
	sshKeyUserFlag(cmd, &user)
	return cmd
}

// listKeysOf returns the command that lists a user's keys.
func listKeysOf(user string) string {
	if user == sdk.Me {
		return "coder ssh-key list"
	}
	return "coder ssh-key list --user " + shell.Word(user)
}
