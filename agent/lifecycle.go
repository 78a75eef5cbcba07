package agent

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/agent/script"
)

// Stages in which scripts run, as the agent reports them.
const (
	stageStart = "start"
	stageStop  = "stop"
	stageCron  = "cron"
)

// startBuild runs the start scripts of a build, unless they have run already.
func (w *workspace) startBuild(ctx context.Context, m *agentpb.ManifestResponse) {
	if before := w.state.started(); before.Incarnation >= m.GetIncarnation() && before.State != 0 {
		w.log.Info("start scripts of this build have run already", "state", before.State.String())
		if before.State == agentpb.LifecycleState_LIFECYCLE_STATE_STARTING {
			// The agent ended while they ran. They may have done half of their work, so the user decides whether to
			// repeat them.
			before.State = agentpb.LifecycleState_LIFECYCLE_STATE_START_ERROR
			w.state.setStarted(before)
		}
		w.logins.open(m.GetIncarnation())
		w.setLifecycle(before.State)
		return
	}
	w.setLifecycle(agentpb.LifecycleState_LIFECYCLE_STATE_STARTING)
	w.state.setStarted(ran{m.GetIncarnation(), agentpb.LifecycleState_LIFECYCLE_STATE_STARTING})
	failed, late := w.runStage(ctx, m, stageStart)
	outcome := agentpb.LifecycleState_LIFECYCLE_STATE_READY
	switch {
	case ctx.Err() != nil:
		return // the agent is stopping and reports that, or a newer build starts
	case late:
		outcome = agentpb.LifecycleState_LIFECYCLE_STATE_START_TIMEOUT
	case failed:
		outcome = agentpb.LifecycleState_LIFECYCLE_STATE_START_ERROR
	}
	w.state.setStarted(ran{m.GetIncarnation(), outcome})
	w.setLifecycle(outcome)
}

// stop runs the stop scripts and reports the result. listening is set if the server still accepts reports.
func (w *workspace) stop(ctx context.Context, m *agentpb.ManifestResponse, listening bool) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	w.setLifecycle(agentpb.LifecycleState_LIFECYCLE_STATE_SHUTTING_DOWN)
	failed, late := w.runStage(ctx, m, stageStop)
	w.stopDevcontainers(ctx, listening)
	outcome := agentpb.LifecycleState_LIFECYCLE_STATE_OFF
	switch {
	case late:
		outcome = agentpb.LifecycleState_LIFECYCLE_STATE_SHUTDOWN_TIMEOUT
	case failed:
		outcome = agentpb.LifecycleState_LIFECYCLE_STATE_SHUTDOWN_ERROR
	}
	w.setLifecycle(outcome)
	if !listening {
		return
	}
	flush, cancelFlush := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancelFlush()
	// Both may fail: when the whole deployment stops, the server ends first.
	if err := w.logs.Flush(flush); err != nil {
		w.log.Warn("cannot send last logs", "err", err)
	}
	if err := w.reports.flush(flush); err != nil {
		w.log.Warn("cannot send last reports", "err", err)
	}
}

func (w *workspace) setLifecycle(state agentpb.LifecycleState) {
	w.log.Info("lifecycle", "state", state.String())
	w.reports.add(report{lifecycle: &agentpb.LifecycleRequest{State: state, ChangedAt: timestamppb.Now()}})
}

// runStage runs all scripts of a stage at once and reports each. At a start, it opens logins once the scripts that
// block them have ended.
func (w *workspace) runStage(ctx context.Context, m *agentpb.ManifestResponse, stage string) (failed, late bool) {
	env := w.scriptEnvironment(m)
	var mu sync.Mutex
	var wg, blocking sync.WaitGroup
	for _, s := range m.GetScripts() {
		if stage == stageStart && !s.GetRunOnStart() || stage == stageStop && !s.GetRunOnStop() {
			continue
		}
		blocks := stage == stageStart && blocksLogin(m, s)
		if blocks {
			blocking.Add(1)
		}
		wg.Go(func() {
			if blocks {
				defer blocking.Done()
			}
			result, ran := w.runScript(ctx, s, env, stage)
			if !ran {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed = failed || !result.OK()
			late = late || result.TimedOut
		})
	}
	if stage == stageStart {
		blocking.Wait()
		if ctx.Err() == nil { // else a newer build starts, or the agent stops
			w.logins.open(m.GetIncarnation())
		}
	}
	wg.Wait()
	return failed, late
}

// runScript runs one script of the manifest and reports its end. ran is false for a script without an id.
func (w *workspace) runScript(
	ctx context.Context, s *agentpb.Script, env script.Environment, stage string,
) (result script.Result, ran bool) {
	id, err := uuid.FromBytes(s.GetId())
	if err != nil {
		w.log.Warn("manifest has a script without an id", "err", err)
		return script.Result{}, false
	}
	todo := script.Script{
		ID: id, Name: s.GetDisplayName(), Text: s.GetScript(), LogPath: s.GetLogPath(),
		Timeout: time.Duration(s.GetTimeoutSeconds()) * time.Second,
	}
	if source, err := uuid.FromBytes(s.GetLogSourceId()); err == nil {
		todo.Output = w.logs.Source(source).Writer(logship.Info)
	}
	result = w.scripts.Run(ctx, todo, env)
	w.log.Info("script ended", "script", todo.Name, "reason", stage, "status", result.ExitCode,
		"duration", result.Ended.Sub(result.Started), "err", result.Err)
	w.reports.add(report{script: &agentpb.ScriptDoneRequest{
		ScriptId: id[:], StartedAt: timestamppb.New(result.Started), EndedAt: timestamppb.New(result.Ended),
		ExitCode: int32(result.ExitCode), TimedOut: result.TimedOut, Stage: stage,
	}})
	return result, true
}
