package tfstate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Parameter is the value with which Terraform built a parameter of a template.
type Parameter struct {
	Name, Value string
	Mutable     bool
}

// Parameters returns the values of the parameters in a state, sorted by name. Values that must not outlive the build
// that they were made for are omitted: those of ephemeral parameters, masked ones that are not the template's own
// default, and those that contain a credential of the workspace's owner. A state that cannot be read has none.
func Parameters(state []byte) []Parameter {
	var s struct {
		Resources []struct {
			Mode      string `json:"mode"`
			Type      string `json:"type"`
			Instances []struct {
				Attributes json.RawMessage `json:"attributes"`
			} `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return nil
	}
	var all []Parameter
	var secrets []string
	for _, r := range s.Resources {
		if r.Mode != "data" {
			continue
		}
		for _, i := range r.Instances {
			switch r.Type {
			case "coder_parameter":
				var p parameter
				if json.Unmarshal(i.Attributes, &p) == nil && p.lasts() {
					all = append(all, Parameter{Name: p.Name, Value: *p.Value, Mutable: p.Mutable})
				}
			case "coder_workspace_owner", "coder_external_auth":
				var c credentials
				if json.Unmarshal(i.Attributes, &c) == nil {
					secrets = append(secrets, c.SessionToken, c.PrivateKey, c.OIDCToken, c.AccessToken)
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(p Parameter) bool {
		return slices.ContainsFunc(secrets,
			func(secret string) bool { return secret != "" && strings.Contains(p.Value, secret) })
	})
	slices.SortFunc(all, func(a, b Parameter) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Parameter) bool { return a.Name == b.Name })
}

// credentials holds the attributes of the coder provider's data sources that are credentials.
type credentials struct {
	SessionToken string `json:"session_token"`
	PrivateKey   string `json:"ssh_private_key"`
	OIDCToken    string `json:"oidc_access_token"`
	AccessToken  string `json:"access_token"`
}

// parameter holds attributes of a coder_parameter.
type parameter struct {
	Name      string  `json:"name"`
	Value     *string `json:"value"`
	Default   *string `json:"default"`
	Mutable   bool    `json:"mutable"`
	Ephemeral bool    `json:"ephemeral"`
	Styling   string  `json:"styling"`
}

// lasts reports whether a later build may have the value, too.
func (p parameter) lasts() bool {
	if p.Name == "" || p.Value == nil || p.Ephemeral {
		return false
	}
	var styling struct {
		MaskInput bool `json:"mask_input"`
	}
	masked := p.Styling != "" && (json.Unmarshal([]byte(p.Styling), &styling) != nil || styling.MaskInput)
	return !masked || p.Default != nil && *p.Default == *p.Value
}
