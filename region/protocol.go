package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/codermesh/codermesh/tailnet"
)

const (
	// CheckPath is where a proxy answers with its Hello's Check.
	CheckPath = "/region-check"
	// MaxHello and MaxUpdate are the longest messages in bytes.
	MaxHello, MaxUpdate = 4 << 10, 128 << 10
	// MaxKeys is how many keys an Update may contain.
	MaxKeys = 1000
	// CheckLength is the length of a Check in bytes.
	CheckLength = 32
)

// Hello is a proxy's first and only message.
type Hello struct {
	URL      string `json:"url"`       // http or https, at which nodes reach the relay
	STUNPort int    `json:"stun_port"` // on the URL's host; 0 means none
	Version  string `json:"version"`   // of the program
	Check    string `json:"check"`     // random; what CheckPath answers
}

// DecodeHello parses a Hello and checks it.
func DecodeHello(data []byte) (h Hello, err error) {
	if len(data) > MaxHello {
		return Hello{}, fmt.Errorf("decode hello: %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return Hello{}, fmt.Errorf("decode hello: %w", err)
	}
	if err := CheckURL(h.URL); err != nil {
		return Hello{}, err
	}
	if h.STUNPort < 0 || h.STUNPort > 0xffff || len(h.Version) > 100 || len(h.Check) != CheckLength {
		return Hello{}, errors.New("decode hello: a field is out of range")
	}
	return h, nil
}

// CheckURL returns an error unless text can be the URL of a proxy.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return fmt.Errorf("%q cannot be the URL of a region: it must be like https://eu.example.com", u.Redacted())
	}
	return nil
}

// Update is a message of the server.
type Update struct {
	Admit  []tailnet.PublicKey `json:"admit,omitempty"`
	Revoke []tailnet.PublicKey `json:"revoke,omitempty"`
	// Synced reports that all keys that were admitted when the connection began have been sent.
	Synced bool `json:"synced,omitempty"`
}

// DecodeUpdate parses an Update.
func DecodeUpdate(data []byte) (u Update, err error) {
	if len(data) > MaxUpdate {
		return Update{}, fmt.Errorf("decode update: %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &u); err != nil {
		return Update{}, fmt.Errorf("decode update: %w", err)
	}
	if len(u.Admit)+len(u.Revoke) > MaxKeys {
		return Update{}, fmt.Errorf("decode update: %d keys", len(u.Admit)+len(u.Revoke))
	}
	return u, nil
}
