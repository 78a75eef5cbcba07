package instanceidentity

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/smallstep/pkcs7"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// azureHosts are the names for which Azure's certificates are: of the public cloud and of those of governments.
var azureHosts = []string{
	"metadata.azure.com", "metadata.azure.us", "metadata.azure.cn", "metadata.azure.eaglex.ic.gov",
	"metadata.azure.microsoft.scloud",
}

// authorityHosts serve the intermediate certificates of Azure's authorities. No certificate makes this server ask
// another one.
var authorityHosts = []string{"www.microsoft.com", "caissuers.microsoft.com", "cacerts.digicert.com"}

const (
	maxCertificate = 16 << 10 // bytes of a fetched certificate
	maxChain       = 3        // intermediate certificates between Azure's and a root
	maxFetched     = 64       // intermediate certificates that are kept
)

// azureTime is how attested data writes times.
const azureTime = "01/02/06 15:04:05 -0700"

// digests are the hashes with which Azure may sign.
var digests = []asn1.ObjectIdentifier{
	pkcs7.OIDDigestAlgorithmSHA256, pkcs7.OIDDigestAlgorithmSHA384, pkcs7.OIDDigestAlgorithmSHA512,
}

type azureProof struct {
	instance Instance
	expires  time.Time
	message  *pkcs7.PKCS7
}

// ParseAzure reads attested data in base64: the attribute signature of what a machine reads at
// metadata/attested/document. It returns fault.Invalid for anything else.
func ParseAzure(signature string) (Proof, error) {
	if len(signature) > maxText {
		return nil, errForm(errTooLong)
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(signature), ""))
	if err != nil {
		return nil, errForm(err)
	}
	message, err := pkcs7.Parse(der)
	if err != nil {
		return nil, errForm(err)
	}
	var d struct {
		VMID           uuid.UUID `json:"vmId"`
		SubscriptionID uuid.UUID `json:"subscriptionId"`
		TimeStamp      struct {
			CreatedOn string `json:"createdOn"`
			ExpiresOn string `json:"expiresOn"`
		} `json:"timeStamp"`
	}
	if err := json.Unmarshal(message.Content, &d); err != nil {
		return nil, errForm(err)
	}
	if d.VMID == uuid.Nil || d.SubscriptionID == uuid.Nil {
		return nil, errForm(errors.New("the document needs vmId and subscriptionId"))
	}
	p := &azureProof{message: message}
	p.instance = Instance{Auth: Azure, ID: d.VMID.String(), Account: d.SubscriptionID.String()}
	if p.instance.At, err = time.Parse(azureTime, d.TimeStamp.CreatedOn); err != nil {
		return nil, errForm(err)
	}
	if p.expires, err = time.Parse(azureTime, d.TimeStamp.ExpiresOn); err != nil {
		return nil, errForm(err)
	}
	return p, nil
}

func (p *azureProof) Claim() Instance { return p.instance }

func (p *azureProof) verify(ctx context.Context, v *Verifier) error {
	if err := v.recent(p.instance.At); err != nil {
		return err
	}
	if !v.opts.Now().Before(p.expires) {
		return refused("the document was valid until %s", p.expires.UTC().Format(time.RFC3339))
	}
	if len(p.message.Signers) != 1 ||
		!slices.ContainsFunc(digests, p.message.Signers[0].DigestAlgorithm.Algorithm.Equal) {
		return refused("the document must have one signature, with SHA-256 or longer")
	}
	signer := p.message.GetOnlySigner()
	if signer == nil {
		return refused("the document lacks the certificate of its signature")
	}
	if !slices.ContainsFunc(signer.DNSNames, isAzureName) {
		return refused("the document's certificate is not for %s", azureHosts[0])
	}
	if err := v.chain(ctx, signer, p.message.Certificates); err != nil {
		return err
	}
	if err := p.message.Verify(); err != nil {
		return refused("%w", err)
	}
	return nil
}

// isAzureName reports whether a certificate's name is one of Azure's: metadata.azure.com, or that of a region.
func isAzureName(name string) bool {
	return slices.ContainsFunc(azureHosts, func(host string) bool {
		return name == host || strings.HasSuffix(name, "."+host)
	})
}

// chain verifies a certificate up to a root. It fetches intermediate certificates that neither the document nor the
// operator's file has.
func (v *Verifier) chain(ctx context.Context, signer *x509.Certificate, sent []*x509.Certificate) error {
	intermediates := x509.NewCertPool()
	for _, c := range slices.Concat(v.intermediates, sent) {
		intermediates.AddCert(c)
	}
	verify := func() error {
		_, err := signer.Verify(x509.VerifyOptions{
			Roots: v.roots, Intermediates: intermediates, CurrentTime: v.opts.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // it is a server's certificate, and signs documents
		})
		return err
	}
	err := verify()
	last := signer
	for range maxChain {
		unknown := x509.UnknownAuthorityError{}
		if err == nil || !errors.As(err, &unknown) {
			break
		}
		c, fetchErr := v.issuer(ctx, last)
		if fetchErr != nil {
			return fault.New(fault.Unavailable, "The certificate of the machine's identity cannot be verified now: %w.",
				fetchErr).WithDetail("A server without the internet needs Azure's certificates in --azure-identity-ca-file.")
		}
		if c == nil {
			break
		}
		intermediates.AddCert(c)
		last = c
		err = verify()
	}
	if err != nil {
		return refused("%w", err)
	}
	return nil
}

// issuer returns the certificate that signed another one, from the address that this one names. It returns nil if there
// is no address that it may ask.
func (v *Verifier) issuer(ctx context.Context, of *x509.Certificate) (*x509.Certificate, error) {
	i := slices.IndexFunc(of.IssuingCertificateURL, func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && slices.Contains(authorityHosts, u.Host)
	})
	if i < 0 {
		return nil, nil
	}
	address := of.IssuingCertificateURL[i]
	v.mu.Lock()
	c := v.fetched[address]
	v.mu.Unlock()
	if c != nil {
		return c, nil
	}
	der, err := v.fetch(ctx, address, maxCertificate)
	if err != nil {
		return nil, err
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.fetched) >= maxFetched {
		clear(v.fetched)
	}
	v.fetched[address] = c
	return c, nil
}
