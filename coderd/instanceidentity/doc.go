// Package instanceidentity verifies what clouds say about their machines. A machine in AWS, Azure or Google Cloud can ask
// its cloud for a document that names it and that only the cloud can sign; an agent shows it in the place of a token.
//
//	document ── Parse… ──▶ Proof ── Claim ──▶ Instance, unverified: is such a machine expected at all?
//	                         └───── Verifier.Verify ──▶ Instance: the cloud says so
//
// The two steps keep strangers from making the server verify, and fetch what that needs, for machines that no workspace
// has.
//
//   - AWS signs the instance identity document with a key of the region. Its certificates are pinned. The document is the
//     same until the machine is launched again, so it has no age: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-signature.html.
//   - Azure signs attested data (PKCS #7) with a certificate for metadata.azure.com, of a public authority:
//     https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data.
//   - Google signs a token (JWT) for an audience, with keys that change within weeks:
//     https://cloud.google.com/compute/docs/instances/verifying-instance-identity.
//
// The package decides nothing about workspaces. Package agents admits machines.
package instanceidentity
