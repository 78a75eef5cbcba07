// What the page of the deployment asks for. Only that page loads this.
import { ask, measured } from "./queries";

// The overview is counted on request: no event announces how it changes.
export const deploymentOverview = () =>
  measured(
    ask(["deployment-overview"], "deployment/overview", {
      query: { timezone: Intl.DateTimeFormat().resolvedOptions().timeZone },
    }),
    30_000,
  );
