// Package complete answers a shell that asks, on Tab, for the rest of a word: the names of workspaces, templates,
// users, groups and organizations, of presets and parameters. Commands need not know it. Install reads what an argument
// is from a command's usage line, such as WORKSPACE, and what a flag takes from its name.
//
// A user waits for Tab, so the server has 300 ms. What it answers is kept in the configuration folder: for ten seconds,
// in which the next Tab asks nothing, and for a day, in case the server is slow or away. A failure completes nothing
// and says nothing.
//
// A word that a shell would not read as it is, such as a name with a semicolon, is never offered: the server could
// otherwise write commands onto the user's line. It must not know the mesh: a Tab starts none.
package complete

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// How long a stored list replaces the server's, and how long it serves if the server does not answer.
const (
	fresh = 10 * time.Second
	stale = 24 * time.Hour
)

// maxLists bounds the file in the configuration folder: each is a question of a user, such as which workspaces of ada
// begin with "d".
const maxLists = 32

// question is what a shell asks: the words that can stand in one place of a command line.
type question struct {
	cmd  *cobra.Command
	args []string // before the word
	word string   // what is typed of it
}

// source returns the words for a place. The answer depends on the key alone, which names the list in the file.
type source struct {
	key  func(question) string
	list func(context.Context, *sdk.Client, question) ([]string, error)
	// suffix follows each word, as "=" follows a parameter's name; "" means that a blank does.
	suffix string
}

// arguments are sources by the word of a usage line.
var arguments = map[string]source{
	"WORKSPACE": workspaces, "TEMPLATE": templates, "USER": users, "user|me": users, "NEW-OWNER": users, "GROUP": groups, "ORGANIZATION": organizations,
}

// values are sources by the name of a flag.
var values = map[string]source{
	"template": templates, "org": organizations, "user": users, "owner": users, "group": groups, "preset": presets, "parameter": parameters,
	"copy-parameters-from": workspaces,
}

// Install makes every command below root complete its arguments and flags. It must be called when all commands are
// there.
func Install(root *cobra.Command, g *global.Flags) {
	for _, cmd := range root.Commands() {
		Install(cmd, g)
	}
	if root.Runnable() && !root.HasSubCommands() && root.ValidArgsFunction == nil && len(root.ValidArgs) == 0 {
		root.ValidArgsFunction = argument(g, strings.Fields(root.Use)[1:])
	}
	offer := func(f *pflag.Flag) {
		from, ok := values[f.Name]
		if !ok || f.Value.Type() == "bool" {
			return
		}
		// The only error is a flag that completes already.
		_ = root.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return answer(g, from, question{cmd, args, word})
		})
	}
	// Not LocalFlags, which merges the sets of all commands above: each start of the program would pay for it.
	root.Flags().VisitAll(offer)
	root.PersistentFlags().VisitAll(offer)
}

// argument completes the arguments that the words of a usage line name.
func argument(g *global.Flags, usage []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		place := placeAt(usage, len(args))
		if from, ok := arguments[place]; ok {
			return answer(g, from, question{cmd, args, word})
		}
		if lower := strings.ToLower(place); strings.Contains(lower, "file") || strings.Contains(lower, "folder") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// placeAt returns what a usage line calls its i-th argument, "" if there is none.
func placeAt(usage []string, i int) string {
	last := ""
	for n, word := range usage {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "[-") {
			break // what follows is not this program's
		}
		place := strings.Trim(word, "[]{}")
		last = ""
		if many, ok := strings.CutSuffix(place, "..."); ok {
			place, last = many, many
		}
		if n == i {
			return place
		}
	}
	return last
}

func answer(g *global.Flags, from source, q question) ([]string, cobra.ShellCompDirective) {
	words, err := ask(g, from, q)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := words[:0]
	for _, word := range words {
		if strings.HasPrefix(word, q.word) && shell.Word(word) == word && word[0] != '-' {
			found = append(found, word+from.suffix)
		}
	}
	if from.suffix != "" {
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// ask returns the words of a source: the stored ones if they are fresh or the server does not answer.
func ask(g *global.Flags, from source, q question) ([]string, error) {
	if err := flags.BindEnv(q.cmd); err != nil { // cobra completes a command without preparing it
		return nil, err
	}
	ctx, cancel := context.WithTimeout(q.cmd.Context(), g.CompletionPatience)
	defer cancel()
	g.Silence()
	dir, err := g.Config()
	if err != nil {
		return nil, err
	}
	url, err := g.ServerURL()
	if err != nil {
		return nil, err
	}
	token, err := g.SessionToken()
	if err != nil {
		return nil, err
	}
	// What a user may see is kept from the next one who signs in.
	sum := sha256.Sum256(append(token.Hash(), url.String()...))
	session, key := hex.EncodeToString(sum[:16]), from.key(q)
	stored := read(dir, session)
	known, ok := stored.Lists[key]
	if age := time.Since(known.At); ok && age >= 0 && age < fresh {
		return known.Words, nil
	}
	client, err := g.Client(ctx)
	if err != nil {
		return nil, err
	}
	words, err := from.list(ctx, client, q)
	if err != nil {
		if ok && time.Since(known.At) < stale {
			return known.Words, nil
		}
		return nil, err
	}
	stored.add(key, words)
	return words, stored.write(dir)
}

// lists is the content of config.FileCompletions: lists of one session, by their keys.
type lists struct {
	Session string          `json:"session"` // a hash of the server's URL and the session
	Lists   map[string]list `json:"lists"`
}

type list struct {
	At    time.Time `json:"at"`
	Words []string  `json:"words"`
}

// read returns the lists of a session: none if there is no file, or one of another session or program.
func read(dir config.Dir, session string) lists {
	var l lists
	text, err := dir.Read(config.FileCompletions)
	if err != nil || json.Unmarshal([]byte(text), &l) != nil || l.Session != session || l.Lists == nil {
		return lists{Session: session, Lists: map[string]list{}}
	}
	return l
}

// add stores a list, in place of the oldest if there are too many.
func (l lists) add(key string, words []string) {
	l.Lists[key] = list{At: time.Now(), Words: words}
	for len(l.Lists) > maxLists {
		oldest := key
		for k, v := range l.Lists {
			if v.At.Before(l.Lists[oldest].At) {
				oldest = k
			}
		}
		delete(l.Lists, oldest)
	}
}

func (l lists) write(dir config.Dir) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return dir.Write(config.FileCompletions, string(data))
}

// named returns the names of items, sorted and each once.
func named[T any](items []T, name func(T) string) []string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = name(item)
	}
	slices.Sort(words)
	return slices.Compact(words)
}
