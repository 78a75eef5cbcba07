package terraform

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-exec/tfexec"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
)

// A rehearsal is a plan of the claim of a prebuilt workspace, made at the end of the build that makes the workspace,
// for an owner who does not exist. If it changes only the owner's data, the server hands the agents to the user who
// claims the workspace before the claim's build has begun. The proof has three parts:
//
//   - The plan's actions. All managed resources stay as they are, except those of the coder provider, which exist in
//     the state only and may change in place.
//   - Terraform's own marks. The worker declares everything about the owner as sensitive (markOwner). Terraform follows
//     such values through expressions, locals, modules and functions, and refuses them in for_each. It drops them in
//     count, so no count may name the owner. What carries a new mark depends on the owner. That is allowed for
//     variables whose expression OwnerText can say, which must give the planned value for this owner, and for what is
//     only shown. Templates that remove marks are not rehearsed. Marks do not cross a provider, so no data source may
//     have a marked argument, and an external program makes the rehearsal fail.
//   - The owner's name, which is random: it must not occur in anything else that the server gets.
//
// A data source of another provider could still answer differently the next time. So could it in a build that changes
// nothing, and the claim's build, which follows, corrects what the agents got.

const rehearsalLimit = 2 * time.Minute // for the whole rehearsal

// rehearse returns what a claim of the workspace will make of it, or why only its build can tell. The job's log says
// the same.
func (r *runner) rehearse(
	ctx context.Context, work *provisionerpb.WorkspaceBuild, state []byte,
) (*provisionerpb.ClaimPlan, []string) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalLimit)
	defer cancel()
	quiet := *r
	quiet.log = result.NewLog(discardSink{}) // the plan is of no build that anyone waits for
	plan, err := quiet.rehearsal(ctx, work, state)
	if err == nil {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO,
			"A claim changes only the owner's data: who claims this workspace gets it at once")
		return plan, nil
	}
	if stopped(r.stop) {
		return nil, nil
	}
	reasons := result.ClaimWaits(err)
	for _, reason := range reasons {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Who claims this workspace waits for a whole build: %s",
			reason)
	}
	return nil, reasons
}

func (r *runner) rehearsal(
	ctx context.Context, work *provisionerpb.WorkspaceBuild, state []byte,
) (*provisionerpb.ClaimPlan, error) {
	t, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	if t.Unmarks {
		return nil, errors.New("the template uses nonsensitive, which hides what depends on the owner")
	}
	secret := strings.ToLower(rand.Text()[:12])
	id := uuid.New()
	m := proto.CloneOf(work.GetMetadata())
	m.Prebuild, m.PrebuildClaim = false, true
	m.OwnerId, m.OwnerName, m.OwnerFullName, m.OwnerEmail = id[:], "o"+secret, "O. "+secret, secret+"@owner.invalid"
	m.WorkspaceName, m.OwnerGroups, m.OwnerRoles = "w"+secret, []string{"g" + secret}, nil
	m.OwnerSshPublicKey, m.OwnerSshPrivateKey = "k"+secret, "k"+secret
	m.OwnerSessionToken, m.OwnerOidcAccessToken = "s"+secret, "t"+secret
	if err := r.fill(t, true, work.GetVariables(), state, withIDToken(nil, m)); err != nil {
		return nil, err
	}
	env, err := r.slot.Serve(ctx, host.Facts{
		Transition: "start", Metadata: m, Parameters: work.GetParameters(), Previous: work.GetParameters(), Build: true,
		Rehearsal: true,
		Token:     t.Token, Key: t.Key, OIDCToken: t.OIDCToken,
	})
	if err != nil {
		return nil, err
	}
	shown, err := r.showPlan(ctx, t, env, tfexec.Refresh(false))
	if err != nil {
		return nil, err
	}
	s, err := result.ParseState(state)
	if err != nil {
		return nil, err
	}
	source, err := t.Resources()
	if err != nil {
		return nil, err
	}
	p := &result.Rehearsal{Template: t, Resources: source, OwnerFacts: provisionerpb.OwnerFacts(m, id.String()),
		Plan: shown}
	return p.ClaimPlan(s, secret, id)
}
