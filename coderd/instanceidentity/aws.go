package instanceidentity

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// awsID matches the ids of AWS's machines.
var awsID = lazyregexp.New(`^i-[0-9a-f]{8,32}$`)

type awsProof struct {
	instance            Instance
	document, signature []byte
}

// ParseAWS reads an instance identity document and its signature in base64: what a machine reads at
// latest/dynamic/instance-identity/document and …/signature. It returns fault.Invalid for anything else.
func ParseAWS(document, signature string) (Proof, error) {
	if len(document) > maxText || len(signature) > maxText {
		return nil, errForm(errTooLong)
	}
	var d struct {
		InstanceID  string    `json:"instanceId"`
		AccountID   string    `json:"accountId"`
		PendingTime time.Time `json:"pendingTime"`
	}
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		return nil, errForm(err)
	}
	if !awsID().MatchString(d.InstanceID) || d.AccountID == "" || d.PendingTime.IsZero() {
		return nil, errForm(errors.New("the document needs instanceId, accountId and pendingTime"))
	}
	// The service breaks the text into lines.
	signed, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(signature), ""))
	if err != nil {
		return nil, errForm(err)
	}
	return &awsProof{
		Instance{Auth: AWS, ID: d.InstanceID, Account: d.AccountID, At: d.PendingTime}, []byte(document), signed,
	}, nil
}

func (p *awsProof) Claim() Instance { return p.instance }

// verify looks for the region's certificate by its signature: the document could name any region.
func (p *awsProof) verify(_ context.Context, v *Verifier) error {
	now := v.opts.Now()
	if p.instance.At.After(now.Add(leeway)) {
		return refused("the machine was launched at %s, which is in the future: compare the clocks",
			p.instance.At.UTC().Format(time.RFC3339))
	}
	sum := sha256.Sum256(p.document)
	for _, c := range v.aws {
		key, ok := c.PublicKey.(*rsa.PublicKey)
		if !ok || rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], p.signature) != nil {
			continue
		}
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			return refused("the certificate of its AWS region is valid from %s to %s: name newer ones with "+
				"--aws-identity-ca-file", c.NotBefore.Format(time.DateOnly), c.NotAfter.Format(time.DateOnly))
		}
		return nil
	}
	return refused("no AWS region that this server knows has signed the document; " +
		"--aws-identity-ca-file names others")
}
