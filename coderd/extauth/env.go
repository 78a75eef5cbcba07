package extauth

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// envPrefix begins the names of a provider's variables: CODER_EXTERNAL_AUTH_0_ID and so on.
const envPrefix = "CODER_EXTERNAL_AUTH_"

const (
	maxProviders = 64
	maxSetting   = 4096 // bytes in one value
)

var (
	idForm  = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)
	numbers = lazyregexp.New(`^[0-9]{1,3}$`)
)

// settings holds the settings of a provider, by the suffix of the variable's name.
var settings = map[string]func(*Provider, string) error{
	"ID":            func(p *Provider, v string) error { p.ID = v; return nil },
	"TYPE":          func(p *Provider, v string) error { p.Type = v; return nil },
	"CLIENT_ID":     func(p *Provider, v string) error { p.ClientID = v; return nil },
	"CLIENT_SECRET": func(p *Provider, v string) error { p.ClientSecret = secret.Token(v); return nil },
	"DISPLAY_NAME":  func(p *Provider, v string) error { p.DisplayName = v; return nil },
	"DISPLAY_ICON":  func(p *Provider, v string) error { p.DisplayIcon = v; return nil },
	"AUTH_URL":      func(p *Provider, v string) error { p.AuthURL = v; return nil },
	"TOKEN_URL":     func(p *Provider, v string) error { p.TokenURL = v; return nil },
	"VALIDATE_URL":  func(p *Provider, v string) error { p.ValidateURL = v; return nil },
	"REVOKE_URL":    func(p *Provider, v string) error { p.RevokeURL = v; return nil },
	"SCOPES":        func(p *Provider, v string) error { p.Scopes = words(v); return nil },
	"EXTRA_TOKEN_KEYS": func(p *Provider, v string) error {
		p.ExtraKeys = words(v)
		for _, secret := range []string{"access_token", "refresh_token", "id_token"} {
			if slices.Contains(p.ExtraKeys, secret) {
				return fmt.Errorf("%s is a secret and no extra property", secret)
			}
		}
		return nil
	},
	"REGEX":      func(p *Provider, v string) (err error) { p.Match, err = compileMatch(v); return err },
	"NO_REFRESH": func(p *Provider, v string) (err error) { p.NoRefresh, err = strconv.ParseBool(v); return err },

	"APP_INSTALL_URL":       func(p *Provider, v string) error { p.InstallURL = v; return nil },
	"APP_INSTALLATIONS_URL": func(p *Provider, v string) error { p.InstallationsURL = v; return nil },

	"DEVICE_FLOW":     func(p *Provider, v string) (err error) { p.Device, err = strconv.ParseBool(v); return err },
	"DEVICE_CODE_URL": func(p *Provider, v string) error { p.DeviceURL = v; return nil },
}

// words splits a list.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' })
}

// ParseEnv parses the providers in an environment (os.Environ), ordered by their numbers. It returns the fault Invalid,
// naming the variable that is wrong.
func ParseEnv(environ []string) ([]Provider, error) {
	found := map[int]*Provider{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		number, setting, numbered := strings.Cut(rest, "_")
		if !ours || !numbered || !numbers().MatchString(number) {
			continue // such as CODER_EXTERNAL_AUTH_ACCESS_TOKEN_github, which a workspace's template may have set
		}
		set, known := settings[setting]
		if !known {
			return nil, fault.New(fault.Invalid, "The setting %s does not exist", name).
				WithDetail("Settings that begin with %s_ are %s.", envPrefix+number,
					strings.Join(slices.Sorted(maps.Keys(settings)), ", "))
		}
		if value == "" {
			continue // treated as unset
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		if found[n] == nil {
			if len(found) == maxProviders {
				return nil, fault.New(fault.Invalid, "There are more than %d providers of %s…", maxProviders, envPrefix)
			}
			found[n] = &Provider{}
		}
		if len(value) > maxSetting {
			return nil, fault.New(fault.Invalid, "%s is longer than %d bytes", name, maxSetting)
		}
		if err := set(found[n], value); err != nil {
			return nil, fault.New(fault.Invalid, "%s cannot be used: %v", name, err)
		}
	}
	var out []Provider
	for _, n := range slices.Sorted(maps.Keys(found)) {
		p := found[n]
		name := envPrefix + strconv.Itoa(n) + "_"
		if err := p.complete(name); err != nil {
			return nil, err
		}
		for _, other := range out {
			if strings.EqualFold(other.ID, p.ID) {
				return nil, fault.New(fault.Invalid, "Two providers of %s… have the id %q", envPrefix, p.ID).
					WithDetail("Give one of them another %sID.", name)
			}
		}
		out = append(out, *p)
	}
	return out, nil
}

// complete derives the missing settings, and validates all of them. name is the prefix of the provider's variables.
func (p *Provider) complete(name string) error {
	if p.Type == "" {
		return fault.New(fault.Invalid, "%sTYPE is missing", name).
			WithDetail("It must be %s, or any other word for a service whose URLs you set.", knownTypes())
	}
	if p.ID == "" {
		p.ID = p.Type
	}
	if !idForm().MatchString(p.ID) {
		return fault.New(fault.Invalid, "%sID cannot be %q", name, p.ID).
			WithDetail("It must begin with a letter or digit and have at most 64 letters, digits, - and _.")
	}
	if p.ClientID == "" {
		return fault.New(fault.Invalid, "%sCLIENT_ID is missing", name).
			WithDetail("The service shows it when you register an OAuth application there.")
	}
	if p.ClientSecret == "" && !p.Device { // services need none for the device flow (RFC 8628, 5.6)
		return fault.New(fault.Invalid, "%sCLIENT_SECRET is missing", name).
			WithDetail("The service shows it when you register an OAuth application there.")
	}
	if err := p.fillURLs(name); err != nil {
		return err
	}
	for _, check := range []struct{ setting, value string }{
		{"AUTH_URL", p.AuthURL}, {"TOKEN_URL", p.TokenURL}, {"VALIDATE_URL", p.ValidateURL},
		{"REVOKE_URL", p.RevokeURL}, {"DEVICE_CODE_URL", p.DeviceURL},
		{"APP_INSTALL_URL", p.InstallURL}, {"APP_INSTALLATIONS_URL", p.InstallationsURL},
	} {
		if check.value == "" && (check.setting != "AUTH_URL" || p.Device) && check.setting != "TOKEN_URL" {
			continue
		}
		if _, err := origin(check.value); err != nil {
			return fault.New(fault.Invalid, "%s%s must be an http or https URL, not %q", name, check.setting,
				check.value)
		}
	}
	kind := kinds[p.Type]
	if p.Match == nil {
		host, err := origin(cmp.Or(p.AuthURL, p.DeviceURL))
		if err != nil {
			return err
		}
		// Matching requires the scheme of the sign-in: a service with HTTPS is never sent a token without it.
		if p.Match, err = compileMatch(regexp.QuoteMeta(host) + `(/.*)?$`); err != nil {
			return err
		}
	}
	if p.ExtraKeys == nil && p.Type == "slack" {
		p.ExtraKeys = []string{"authed_user"} // whose token it is
	}
	if p.Scopes == nil {
		p.Scopes = kind.scopes
	}
	if p.DisplayName == "" {
		p.DisplayName = kind.name
	}
	if p.DisplayName == "" {
		p.DisplayName = p.ID
	}
	return nil
}

// knownTypes are the types whose URLs the server knows, in words.
func knownTypes() string {
	names := slices.Sorted(maps.Keys(kinds))
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// fillURLs completes the URLs of a known type: those of the public service, or those beside the given sign-in page. An
// address alone stands for the sign-in page at its usual place.
func (p *Provider) fillURLs(name string) error {
	if p.DeviceURL != "" && !p.Device {
		return fault.New(fault.Invalid, "%sDEVICE_CODE_URL needs %sDEVICE_FLOW=true", name, name)
	}
	kind, known := kinds[p.Type]
	if !known {
		needs := []struct{ setting, value string }{{"AUTH_URL", p.AuthURL}, {"TOKEN_URL", p.TokenURL}}
		if p.Device {
			needs[0].setting, needs[0].value = "DEVICE_CODE_URL", p.DeviceURL
		}
		for _, need := range needs {
			if need.value == "" {
				return fault.New(fault.Invalid, "%s%s is missing", name, need.setting).
					WithDetail("The server knows the URLs of %s only, not those of %q.", knownTypes(), p.Type)
			}
		}
		return nil
	}
	base, validate, revoke, installations := kind.origin, kind.validate, kind.revoke, kind.installations
	if p.AuthURL == "" && kind.origin == "" {
		return fault.New(fault.Invalid, "%sAUTH_URL is missing", name).
			WithDetail("It is the address of your %s, such as https://git.example.com.", kind.name)
	}
	if p.AuthURL != "" {
		given, err := origin(p.AuthURL)
		if err != nil {
			return fault.New(fault.Invalid, "%sAUTH_URL must be an http or https URL, not %q", name, p.AuthURL)
		}
		if given != kind.origin {
			if kind.publicOnly && p.TokenURL == "" {
				return fault.New(fault.Invalid, "%sTOKEN_URL is missing", name).
					WithDetail("The server knows those of %s only.", kind.origin)
			}
			base = given
			if below, ok := strings.CutSuffix(p.AuthURL, kind.auth); ok { // also of a server in a folder of its host
				base = below
			}
			validate = base + kind.validateElsewhere
			if installations = ""; kind.installationsElsewhere != "" {
				installations = base + kind.installationsElsewhere
			}
			if revoke = ""; kind.revokeElsewhere != "" {
				revoke = base + kind.revokeElsewhere
			}
		}
		if strings.TrimSuffix(p.AuthURL, "/") == base { // the server's address alone
			p.AuthURL = ""
		}
	}
	if p.AuthURL == "" {
		p.AuthURL = base + kind.auth
	}
	if p.TokenURL == "" {
		p.TokenURL = base + kind.token
	}
	if p.Device && p.DeviceURL == "" {
		if kind.device == "" {
			return fault.New(fault.Invalid, "%sDEVICE_CODE_URL is missing", name).
				WithDetail("The server knows no device flow of %s.", kind.name)
		}
		p.DeviceURL = base + kind.device
	}
	if p.ValidateURL == "" && (base == kind.origin || kind.validateElsewhere != "") {
		p.ValidateURL = validate
	}
	if p.InstallationsURL == "" {
		p.InstallationsURL = installations
	}
	if p.RevokeURL == "" && (p.ClientSecret != "" || !kind.ownAPI) { // GitHub's API needs the secret
		p.RevokeURL = strings.Replace(revoke, "CLIENT_ID", url.PathEscape(p.ClientID), 1)
	}
	return nil
}

// origin returns the scheme and host of an http or https URL.
func origin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", fault.New(fault.Invalid, "%q is not an http or https URL", text)
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}
