package instanceidentity

import (
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Auth is how an agent proves who it is: the attribute auth of coder_agent.
type Auth string

// The ways that name a cloud.
const (
	AWS    Auth = "aws-instance-identity"
	Azure  Auth = "azure-instance-identity"
	Google Auth = "google-instance-identity"
)

const (
	// maxAge is how old a document may be whose cloud makes a new one for each question.
	maxAge = 5 * time.Minute
	// leeway is how far a cloud's clock may be ahead of the server's.
	leeway = time.Minute
	// maxText bounds each part of a proof, in bytes. Azure's is the longest, with up to 10 kB.
	maxText = 64 << 10
)

// Instance is a machine of a cloud.
type Instance struct {
	Auth Auth
	// ID is the machine's: i-… in AWS, a lower-case UUID in Azure, a number in Google Cloud.
	ID string
	// Account is who pays for it: an AWS account's number, an Azure subscription's lower-case UUID, a Google project.
	Account string
	// At is when the document was made, and in AWS when the machine was launched.
	At time.Time
}

// Proof is a document that an agent shows.
type Proof interface {
	// Claim returns what the document says. Only Verifier.Verify makes it true.
	Claim() Instance

	verify(ctx context.Context, v *Verifier) error
}

// Options configure a verifier.
type Options struct {
	// Audience is the server's URL, for which Google's tokens must be made.
	Audience string
	// AWSCertificates and AzureCertificates name PEM files that replace those that this package contains: the
	// certificates of AWS's regions, and the authorities of Azure's certificate, roots and intermediate ones. "" means
	// the contained ones.
	AWSCertificates, AzureCertificates string
	// GoogleKeys names a file with Google's keys (JWKS), for a server that cannot fetch them. "" means to fetch them.
	GoogleKeys string
	// Client fetches Google's keys and the intermediate certificates of Azure. Nil means a client with a timeout.
	Client *http.Client
	// Now replaces the clock.
	Now func() time.Time
}

// Verifier verifies proofs. Use New.
type Verifier struct {
	opts          Options
	aws           []*x509.Certificate
	roots         *x509.CertPool // Azure's
	intermediates []*x509.Certificate

	mu      sync.Mutex
	fetched map[string]*x509.Certificate // intermediates by their addresses
	keys    *jose.JSONWebKeySet          // Google's
	keysAt  time.Time                    // when they were fetched
}

//go:embed aws.pem
var awsPEM []byte

//go:embed azure.pem
var azurePEM []byte

// New returns a verifier, or a fault that names the file that cannot be used.
func New(opts Options) (*Verifier, error) {
	if opts.Client == nil {
		opts.Client = &http.Client{Timeout: 10 * time.Second}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	v := &Verifier{opts: opts, roots: x509.NewCertPool(), fetched: map[string]*x509.Certificate{}}
	var err error
	if v.aws, err = certificates(awsPEM, opts.AWSCertificates, "--aws-identity-ca-file"); err != nil {
		return nil, err
	}
	all, err := certificates(azurePEM, opts.AzureCertificates, "--azure-identity-ca-file")
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if isRoot(c) {
			v.roots.AddCert(c)
		} else {
			v.intermediates = append(v.intermediates, c)
		}
	}
	if err := v.readGoogleKeys(); err != nil {
		return nil, err
	}
	return v, nil
}

// Verify returns the machine that a proof names. It returns fault.Unauthenticated for a document that the cloud did not
// sign, or not now, or for another server, and fault.Unavailable when what it needs cannot be fetched.
func (v *Verifier) Verify(ctx context.Context, p Proof) (Instance, error) {
	if err := p.verify(ctx, v); err != nil {
		return Instance{}, err
	}
	return p.Claim(), nil
}

// recent returns a fault unless a document was made just now.
func (v *Verifier) recent(at time.Time) error {
	switch age := v.opts.Now().Sub(at); {
	case age > maxAge:
		return refused("the document is of %s, and older than %s", at.UTC().Format(time.RFC3339), maxAge)
	case age < -leeway:
		return refused("the document is of %s, which is in the future: compare the clocks", at.UTC().Format(time.RFC3339))
	}
	return nil
}

// isRoot reports whether a certificate has signed itself.
func isRoot(c *x509.Certificate) bool { return c.IsCA && c.CheckSignatureFrom(c) == nil }

// certificates returns those of a file, or the contained ones if it has no name.
func certificates(contained []byte, file, flag string) ([]*x509.Certificate, error) {
	data := contained
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, fault.New(fault.Invalid, "%s cannot be read: %w", flag, err)
		}
	}
	var all []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%s has a certificate that cannot be read: %w", flag, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fault.New(fault.Invalid, "%s has no certificate.", flag).WithDetail("It must be a PEM file.")
	}
	return all, nil
}

// refused returns the fault for a document that proves nothing.
func refused(format string, args ...any) error {
	return fault.New(fault.Unauthenticated, "The machine's identity is not proven: %w.", fmt.Errorf(format, args...))
}

// errForm reports a document that cannot be read.
func errForm(err error) error {
	return fault.New(fault.Invalid, "The machine's identity cannot be read: %w.", err)
}

var errTooLong = errors.New("it is too long")
