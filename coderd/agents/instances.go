package agents

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// A machine of a cloud has no token: it proves who it is with a document that its cloud signed, and gets a token of its
// own for the rest of the build. The machine keeps it over restarts. A build admits one machine for each agent, once: a
// program that finds the document later, or asks the cloud for another one, gets nothing.

// postAWSIdentity admits a machine of AWS: POST …/workspaceagents/aws-instance-identity.
func (s *Service) postAWSIdentity(w http.ResponseWriter, r *http.Request) error {
	var body sdk.AWSInstanceIdentity
	if err := httpapi.Read(w, r, &body); err != nil {
		return err
	}
	p, err := instanceidentity.ParseAWS(body.Document, body.Signature)
	return s.admitInstance(w, r, p, err)
}

// postAzureIdentity admits a machine of Azure: POST …/workspaceagents/azure-instance-identity.
func (s *Service) postAzureIdentity(w http.ResponseWriter, r *http.Request) error {
	var body sdk.AzureInstanceIdentity
	if err := httpapi.Read(w, r, &body); err != nil {
		return err
	}
	p, err := instanceidentity.ParseAzure(body.Signature)
	return s.admitInstance(w, r, p, err)
}

// postGoogleIdentity admits a machine of Google Cloud: POST …/workspaceagents/google-instance-identity.
func (s *Service) postGoogleIdentity(w http.ResponseWriter, r *http.Request) error {
	var body sdk.GoogleInstanceIdentity
	if err := httpapi.Read(w, r, &body); err != nil {
		return err
	}
	p, err := instanceidentity.ParseGoogle(body.JSONWebToken)
	return s.admitInstance(w, r, p, err)
}

// admitInstance answers a proof, unless it could not be read, with a token for the agent of the machine.
func (s *Service) admitInstance(w http.ResponseWriter, r *http.Request, p instanceidentity.Proof, unreadable error) error {
	if unreadable != nil {
		return unreadable
	}
	if s.opts.Instances == nil {
		return fault.New(fault.Forbidden, "This server admits agents by their tokens only.")
	}
	agent, err := s.agentOfInstance(r.Context(), p.Claim())
	if err != nil {
		return err
	}
	instance, err := s.opts.Instances.Verify(r.Context(), p)
	if err != nil {
		return err
	}
	if want := agent.InstanceAccount; want != "" && !strings.EqualFold(want, instance.Account) {
		return fault.New(fault.Forbidden, "The machine %s belongs to another account than the workspace's.", instance.ID)
	}
	token := secret.Token(rand.Text())
	n, err := s.opts.DB.AdmitInstance(r.Context(), dbsqlc.AdmitInstanceParams{
		ID: agent.ID, TokenHash: token.Hash(), OfflineTokenHash: token.Offline().Hash(), At: instance.At,
	})
	if err != nil {
		return fmt.Errorf("admit machine: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "The machine %s was admitted already since its workspace started.", instance.ID).
			WithDetail("If it has lost its disk, restart the workspace %s/%s.", agent.OwnerName, agent.WorkspaceName)
	}
	s.log.InfoContext(r.Context(), "admitted a machine as an agent", "agent", agent.ID, "what", instance.ID,
		"account", instance.Account)
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, sdk.AgentSession{SessionToken: token.Reveal()})
}

// agentOfInstance returns the agent that a machine may be. It returns fault.Unavailable while a build may still report
// the machine, and fault.Unauthenticated for one that no running workspace has.
func (s *Service) agentOfInstance(
	ctx context.Context, claim instanceidentity.Instance,
) (agent dbsqlc.ListInstanceAgentsRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	find := func() ([]dbsqlc.ListInstanceAgentsRow, error) {
		return s.opts.DB.ListInstanceAgents(ctx, dbsqlc.ListInstanceAgentsParams{
			InstanceID: claim.ID, Auth: string(claim.Auth),
		})
	}
	rows, err := find()
	starting := false
	if err == nil && len(rows) == 0 {
		if starting, err = s.opts.DB.IsStartRunning(ctx); err == nil && !starting {
			rows, err = find() // a build that ran at the first question, and runs no more, has reported it
		}
	}
	switch {
	case err != nil:
		return agent, fault.New(fault.Unavailable, "The machine's workspace cannot be looked up now: %w", err)
	case len(rows) == 1:
		return rows[0], nil
	case len(rows) > 1:
		return agent, fault.New(fault.Conflict, "Several agents say that their machine is %s.", claim.ID).
			WithDetail("Each machine can be one agent's: see coder_agent_instance in their templates.")
	case starting:
		return agent, fault.New(fault.Unavailable, "The machine %s is not known yet.", claim.ID).
			WithDetail("A running build may still report it.")
	}
	return agent, fault.New(fault.Unauthenticated, "No running workspace has the machine %s.", claim.ID).
		WithDetail("It is stopped or deleted, or its template has no agent with %s for the machine.", claim.Auth)
}
