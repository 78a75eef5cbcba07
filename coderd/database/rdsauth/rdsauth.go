// Package rdsauth signs in to PostgreSQL at Amazon RDS and Aurora with IAM instead of a password: it makes a token for
// each new connection, from the credentials that the AWS SDK finds in the environment, its files, or at the machine. A
// token is valid for 15 minutes, and only to connect. The package knows no schema and no server.
package rdsauth

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// timeout bounds the search for credentials: they may come from a service on the network.
const timeout = 10 * time.Second

// Tokens makes tokens for one database. Safe for concurrent use.
type Tokens struct {
	credentials    aws.CredentialsProvider // renews what it caches
	endpoint, user string
	region         string
}

// New returns the tokens for the database at a PostgreSQL URL. It reads the SDK's configuration, but fetches no
// credentials. The URL must name one host, a user, and a mode of TLS that never sends the token in plain text; the
// fault says what is missing.
func New(ctx context.Context, url string) (*Tokens, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The PostgreSQL URL cannot be read: %w", err).
			WithDetail("With awsiamrds it must look like postgres://user@host:5432/database?sslmode=verify-full.")
	}
	plain := cfg.TLSConfig == nil
	for _, other := range cfg.Fallbacks {
		if other.Host != cfg.Host || other.Port != cfg.Port {
			return nil, fault.New(fault.Invalid, "awsiamrds supports a single host in the PostgreSQL URL: a token is valid for one host.").
				WithDetail("Use the endpoint of the cluster, which follows the primary.")
		}
		plain = plain || other.TLSConfig == nil
	}
	if plain {
		return nil, fault.New(fault.Invalid, "awsiamrds requires TLS, because the token is sent to the database.").
			WithDetail("Add sslmode=verify-full and sslrootcert, the file with Amazon's certificates, to the PostgreSQL URL.")
	}
	sdk, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The AWS configuration cannot be read: %w", err)
	}
	region := sdk.Region
	if region == "" {
		region = regionOf(cfg.Host)
	}
	if region == "" {
		return nil, fault.New(fault.Invalid, "awsiamrds does not know the region of %s.", cfg.Host).
			WithDetail("Set AWS_REGION.")
	}
	return &Tokens{
		credentials: sdk.Credentials, user: cfg.User, region: region,
		endpoint: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))),
	}, nil
}

// Password returns a new token. It is signed locally, unless the credentials have expired. Without credentials it
// returns the fault Unavailable.
func (t *Tokens) Password(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	token, err := auth.BuildAuthToken(ctx, t.endpoint, t.region, t.user, t.credentials)
	if err != nil {
		return "", &fault.Error{
			Code: fault.Unavailable, Cause: err, Message: "The server cannot sign in to its database.",
			Detail: "It found no valid AWS credentials: give its machine a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
		}
	}
	return token, nil
}

// regionOf returns the region in the name of an RDS endpoint, such as dev.c1.eu-central-1.rds.amazonaws.com, or "".
func regionOf(host string) string {
	name, _, ok := strings.Cut(strings.TrimSuffix(host, "."), ".rds.amazonaws.com")
	if !ok {
		return ""
	}
	return name[strings.LastIndexByte(name, '.')+1:]
}
