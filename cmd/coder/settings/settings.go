package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Key is the place of a flag in the file.
type Key struct {
	// Path names the key below its groups, such as "networking.http.httpAddress".
	Path string
	// Secret hides the value, and adds the flag that reads it from a file unless the command has it.
	Secret bool
	// File is the key of that flag.
	File string
	// JSON lets the file contain an object or a list for a flag whose value is JSON.
	JSON bool
}

// Set holds the settings of one command. It is used by one goroutine.
type Set struct {
	cmd   *cobra.Command
	keys  map[string]Key // by flag
	lists map[string]*list
	wrong []problem
	// warnings are mistakes that do no harm, as sentences.
	warnings []string
	files    map[string]string // flags with the name of a secret's file, by the secret's flag
	renamed  map[string]string // flags by another name, which is "--NAME" or "$VARIABLE"
}

// list is a key that holds a list of objects, each of which becomes numbered environment variables.
type list struct {
	prefix  string   // of the variables
	fields  []string // keys of an object
	environ []string // from the file
	secret  string   // the field that is not written
}

// problem is one mistake.
type problem struct{ where, detail string }

// configFlag and writeFlag are the flags that New adds.
const (
	configFlag = "config"
	writeFlag  = "write-config"
)

// New prepares the flags of cmd, which must all exist by now. keys has one Key for each of cmd's own flags; a flag
// without one gets a key from its name. configEnv is the variable with the file's name.
func New(cmd *cobra.Command, keys map[string]Key, configEnv string) *Set {
	s := &Set{
		cmd: cmd, keys: maps.Clone(keys), lists: map[string]*list{}, files: map[string]string{}, renamed: map[string]string{},
	}
	f := cmd.Flags()
	var secrets []*pflag.Flag
	f.VisitAll(func(flag *pflag.Flag) {
		key, ok := s.keys[flag.Name]
		if !ok {
			key.Path = camel(flag.Name)
			s.keys[flag.Name] = key
		}
		if key.Secret {
			secrets = append(secrets, flag)
		}
	})
	for _, secret := range secrets {
		name := secret.Name + "-file"
		if f.Lookup(name) != nil {
			continue // the daemon reads it
		}
		f.String(name, "", "file with the value of --"+secret.Name)
		s.keys[name] = Key{Path: cmp.Or(s.keys[secret.Name].File, camel(name))}
		s.files[secret.Name] = name
		var variables []string
		for _, variable := range flags.EnvNames(cmd, secret) {
			variables = append(variables, variable+"_FILE")
		}
		flags.SetEnv(f.Lookup(name), variables...)
	}
	f.VisitAll(func(flag *pflag.Flag) {
		wrapped := recorded{Value: flag.Value, set: s, flag: flag}
		if values, ok := flag.Value.(pflag.SliceValue); ok {
			flag.Value = recordedSlice{wrapped, values}
		} else {
			flag.Value = wrapped
		}
		if flag.DefValue == "[]" || flag.DefValue == "0s" {
			flag.DefValue = "" // the help omits these for the types of pflag only
		}
	})
	f.String(configFlag, "", "YAML file with settings; flags and environment variables override it")
	f.Bool(writeFlag, false, "print the present settings as a YAML file, without the values of secrets, and exit")
	flags.SetEnv(f.Lookup(configFlag), configEnv)
	return s
}

// Rename lets another name and another variable set a flag of cmd. Using one is a warning that says what it is called
// here. It must be called before the command line and the environment are read.
func (s *Set) Rename(flag, name, variable string) {
	s.renamed["--"+name], s.renamed["$"+variable] = flag, flag
	f := s.cmd.Flags()
	flags.SetEnv(f.Lookup(flag), append(flags.EnvNames(s.cmd, f.Lookup(flag)), variable)...)
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if flag, ok := s.renamed["--"+name]; ok {
			s.noteName("--"+name, flag)
			return pflag.NormalizedName(flag)
		}
		return pflag.NormalizedName(name)
	})
}

// noteName warns once that a flag is set by another name.
func (s *Set) noteName(name, flag string) {
	if text := fmt.Sprintf("%s is called --%s here", name, flag); !slices.Contains(s.warnings, text) {
		s.warnings = append(s.warnings, text)
	}
}

// camel turns a flag's name into a key: http-address becomes httpAddress.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// KeyOf returns the key of a flag in the file, or "".
func (s *Set) KeyOf(flag string) string { return s.keys[flag].Path }

// AddList adds a key whose value is a list of objects with these fields. Object i sets PREFIX_i_FIELD for each of its
// fields, as Environ returns it. The field secret is never written.
func (s *Set) AddList(path, prefix, secret string, fields ...string) {
	s.lists[path] = &list{prefix: prefix, fields: fields, secret: secret}
}

// recorded is the value of a flag whose mistakes are collected.
type recorded struct {
	pflag.Value
	set  *Set
	flag *pflag.Flag
}

// Set implements pflag.Value. It never fails.
func (v recorded) Set(text string) error {
	if err := v.Value.Set(text); err != nil {
		v.set.reject(v.flag, text, err)
	}
	return nil
}

// recordedSlice is recorded for a list.
type recordedSlice struct {
	recorded
	pflag.SliceValue
}

// reject records that the value of a flag cannot be used.
func (s *Set) reject(flag *pflag.Flag, text string, err error) {
	if s.keys[flag.Name].Secret {
		s.wrong = append(s.wrong, problem{s.where(flag), "cannot be used"})
		return
	}
	detail := ""
	switch flag.Value.Type() {
	case "bool":
		detail = fmt.Sprintf("%q is neither true nor false", text)
	case "int", "uint64":
		detail = fmt.Sprintf("%q is not a whole number in the allowed range", text)
	case "float64":
		detail = fmt.Sprintf("%q is not a number", text)
	case "duration":
		detail = fmt.Sprintf("%q is not a duration such as 90s, 30m or 12h", text)
		if f := fault.As(err); f != nil {
			detail = f.Error()
		}
	default:
		detail = fmt.Sprintf("%q cannot be used: %v", text, err)
	}
	s.wrong = append(s.wrong, problem{s.where(flag), detail})
}

// where names the place of a flag's value: the flag, its variable, or the line of the file.
func (s *Set) where(flag *pflag.Flag) string {
	if source := flags.Source(flag); source != "" {
		return source
	}
	return "--" + flag.Name
}

// Check adds err to what is wrong, if it is not nil, and reports whether it is.
func (s *Set) Check(err error) bool {
	if err == nil {
		return true
	}
	if f := fault.As(err); f != nil && len(f.Fields) > 0 {
		for _, field := range f.Fields {
			s.wrong = append(s.wrong, problem{field.Field, field.Detail})
		}
		return false
	}
	s.wrong = append(s.wrong, problem{detail: err.Error()})
	return false
}

// Err returns everything that is wrong as one fault, or nil.
func (s *Set) Err() error {
	if len(s.wrong) == 0 {
		return nil
	}
	texts := make([]string, 0, len(s.wrong))
	for _, p := range s.wrong {
		text := strings.TrimSuffix(p.detail, ".")
		if p.where != "" {
			text = p.where + ": " + text
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return fault.New(fault.Invalid, "%s", texts[0])
	}
	return fault.New(fault.Invalid, "%d settings cannot be used: %s", len(texts), strings.Join(texts, "; "))
}

// Warnings returns what Load noticed and does no harm, as sentences.
func (s *Set) Warnings() []string { return s.warnings }

// Load reads the file, and the files of secrets. It collects mistakes for Err. It must be called once, after the
// command line and the environment are read.
func (s *Set) Load() {
	f := s.cmd.Flags()
	if name := f.Lookup(configFlag).Value.String(); name != "" {
		s.loadFile(name)
	}
	s.warnUnknownVariables(os.Environ())
	f.VisitAll(func(flag *pflag.Flag) {
		if source := flags.Source(flag); s.renamed[source] == flag.Name {
			s.noteName(source, flag.Name)
		}
	})
	for _, secret := range slices.Sorted(maps.Keys(s.files)) {
		s.loadSecret(f.Lookup(secret), f.Lookup(s.files[secret]))
	}
}

// loadSecret sets a secret from its file, unless a stronger source sets it.
func (s *Set) loadSecret(secret, file *pflag.Flag) {
	name := file.Value.String()
	if name == "" || rank(secret) > rank(file) {
		return
	}
	if rank(secret) == rank(file) {
		s.wrong = append(s.wrong,
			problem{s.where(file), fmt.Sprintf("--%s and --%s cannot be combined", secret.Name, file.Name)})
		return
	}
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxFile {
		err = errors.New("it is longer than a secret can be")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		s.wrong = append(s.wrong, problem{s.where(file), fmt.Sprintf("cannot read the file: %v", err)})
		return
	}
	value := strings.TrimRight(string(text), "\r\n")
	if value == "" {
		s.wrong = append(s.wrong, problem{s.where(file), "the file " + name + " is empty"})
		return
	}
	if source := flags.Source(file); source != "" {
		flags.SetSource(secret, source)
	} else {
		flags.SetSource(secret, "--"+file.Name)
	}
	s.put(secret, value)
}

// put sets a flag.
func (s *Set) put(flag *pflag.Flag, value string) {
	s.Check(s.cmd.Flags().Set(flag.Name, value))
}

// rank orders the sources of a flag's value: the greater wins.
func rank(flag *pflag.Flag) int {
	source := flags.Source(flag)
	switch {
	case !flag.Changed:
		return 0
	case source == "":
		return 3
	case strings.HasPrefix(source, "$"):
		return 2
	}
	return 1
}

// WriteRequested reports whether the daemon must call Write and end.
func (s *Set) WriteRequested() bool { return s.cmd.Flags().Lookup(writeFlag).Value.String() == "true" }

// SecretFiles returns the files that a command's present flags name, except those with public certificates: files with
// secrets, and the settings' own file, which may hold some.
func SecretFiles(cmd *cobra.Command) []string {
	var files []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != configFlag && !strings.HasSuffix(flag.Name, "-file") || Public(flag.Name) {
			return
		}
		if values, ok := flag.Value.(pflag.SliceValue); ok {
			files = append(files, values.GetSlice()...)
		} else {
			files = append(files, flag.Value.String())
		}
	})
	return slices.DeleteFunc(files, func(name string) bool { return name == "" })
}

// Public reports whether a flag names a file with the certificates of authorities, which is no secret.
func Public(flag string) bool {
	for _, suffix := range []string{"-ca-file", "-ca-cert-file", "-cacertfile"} {
		if strings.HasSuffix(flag, suffix) {
			return true
		}
	}
	return false
}

// Environ returns environ, and the variables for the file's lists unless environ has some of that list.
func (s *Set) Environ(environ []string) []string {
	out := slices.Clone(environ)
	for _, path := range slices.Sorted(maps.Keys(s.lists)) {
		l := s.lists[path]
		if !slices.ContainsFunc(environ, func(one string) bool { return strings.HasPrefix(one, l.prefix) }) {
			out = append(out, l.environ...)
		}
	}
	return out
}
