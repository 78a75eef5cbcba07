// Routes: which page an address shows, for signed-in users and others.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useRef } from "react";
import { Redirect, Route, Switch, useLocation, useSearch } from "wouter";
import { usePathname } from "wouter/use-browser-location";
import { Boundary } from "~/components/shell/boundary";
import { ConnectionNote } from "~/components/shell/connection-note";
import { Shell } from "~/components/shell/shell";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { LinkButton } from "~/components/ui/link-button";
import { Loading } from "~/components/ui/loading";
import { UserContext } from "~/components/ui/user";
import { ApiError, useLink } from "./api/client";
import { useEvents } from "./api/events";
import { queries } from "./api/queries";
import type { User } from "./api/types";
import { useOwnDocument } from "./lib/confined";
import { decoded, paths } from "./lib/path";

const Login = lazy(() => import("./pages/login"));
const Device = lazy(() => import("./pages/device"));
const ResetPassword = lazy(() => import("./pages/reset-password"));
const Setup = lazy(() => import("./pages/setup"));
const CliAuth = lazy(() => import("./pages/cli-auth"));
const CliAuthCode = lazy(() => import("./pages/cli-auth-code"));
const Workspaces = lazy(() => import("./pages/workspaces"));
const WorkspacePage = lazy(() => import("./pages/workspace"));
const Create = lazy(() => import("./pages/create"));
const Terminal = lazy(() => import("./pages/terminal"));
const Templates = lazy(() => import("./pages/templates"));
const NewTemplate = lazy(() => import("./pages/new-template"));
const TemplatePage = lazy(() => import("./pages/template"));
const EditVersion = lazy(() => import("./pages/edit-version"));
const VersionPage = lazy(() => import("./pages/version"));
const Provisioners = lazy(() => import("./pages/provisioners"));
const Users = lazy(() => import("./pages/users"));
const Organizations = lazy(() => import("./pages/organizations"));
const OrganizationPage = lazy(() => import("./pages/organization"));
const Audit = lazy(() => import("./pages/audit"));
const ConnectionLog = lazy(() => import("./pages/connection-log"));
const Account = lazy(() => import("./pages/account"));
const ExternalAuth = lazy(() => import("./pages/external-auth"));
const Notifications = lazy(() => import("./pages/notifications"));
const Webhooks = lazy(() => import("./pages/webhooks"));
const Deployment = lazy(() => import("./pages/deployment"));
const DeploymentNotifications = lazy(() => import("./pages/deployment-notifications"));
const DeploymentSettings = lazy(() => import("./pages/deployment-settings"));
const Appearance = lazy(() => import("./pages/appearance"));
const Downloads = lazy(() => import("./pages/downloads"));
const Docs = lazy(() => import("./pages/docs"));
const Health = lazy(() => import("./pages/health"));
const Mesh = lazy(() => import("./pages/mesh"));

export function App() {
  if (!useOwnDocument()) return <Loading what="page" />;
  return (
    <Boundary>
      <Suspense fallback={<Loading what="page" />}>
        <Switch>
          <Route path="/login" component={Login} />
          <Route path="/login/device" component={Device} />
          <Route path="/reset-password" component={ResetPassword} />
          <Route path="/reset-password/change" component={ResetPassword} />
          <Route path="/setup" component={Setup} />
          <Route>
            <SignedIn />
          </Route>
        </Switch>
      </Suspense>
    </Boundary>
  );
}

// SignedIn shows pages to signed-in users and sends others to sign in and back.
function SignedIn() {
  const [path] = useLocation();
  const search = useSearch();
  const { session, server } = useLink();
  const me = useQuery(queries.me());
  const back = path + (search && `?${search}`) + location.hash;
  if (session === "ended" || (me.error instanceof ApiError && me.error.status === 401))
    return <Redirect to={paths.login(back)} replace />;
  if (me.data) return <Inside me={me.data} />;
  return (
    <>
      <ConnectionNote />
      {server === "unable" && path === "/health" ? (
        // The server knows for a while who may read the report, also without its database.
        <main>
          <Health />
        </main>
      ) : me.error ? (
        <div className="mx-auto max-w-lg p-8">
          <ErrorNote error={me.error} />
        </div>
      ) : (
        <Loading what="page" />
      )}
    </>
  );
}

function Inside({ me }: { me: User }) {
  useEvents();
  return (
    <UserContext value={me}>
      <Switch>
        <Route path={/^\/@(?<owner>[^/]+)\/(?<name>[^/.]+)(?:\.(?<agent>[^/]+))?\/terminal\/?$/}>
          {(p) => <Terminal key={`${p.owner}/${p.name}`} owner={p.owner!} name={p.name!} agent={p.agent} />}
        </Route>
        <Route>
          <Shell>
            <Pages />
          </Shell>
        </Route>
      </Switch>
    </UserContext>
  );
}

function Pages() {
  const [path] = useLocation();
  const before = useRef(path);
  useEffect(() => {
    if (!location.hash) scrollTo(0, 0);
    // The focus follows to the new page, unless what has it is part of that page too, such as a tab.
    const main = document.getElementById("main");
    if (before.current !== path && !main?.contains(document.activeElement)) main?.focus({ preventScroll: true });
    before.current = path;
  }, [path]);
  return (
    <Boundary at={path}>
      <Suspense fallback={<Loading what="page" />}>
        <Switch>
          <Route path="/">
            <Redirect to={paths.workspaces} replace />
          </Route>
          <Route path="/workspaces" component={Workspaces} />
          <Route path={/^\/@(?<owner>[^/]+)\/(?<name>[^/.]+)(?:\/builds\/(?<build>\d+))?\/?$/}>
            {(p) => (
              <WorkspacePage
                key={`${p.owner}/${p.name}`}
                owner={p.owner!}
                name={p.name!}
                build={p.build ? Number(p.build) : undefined}
              />
            )}
          </Route>
          <Route path={/^\/@(?<owner>[^/]+)\/(?<name>[^/.]+)\/settings\/?$/}>
            {(p) => <Redirect to={paths.workspaceSettings(p.owner!, p.name!)} replace />}
          </Route>
          <Route path="/templates" component={Templates} />
          <Route path="/templates/new" component={NewTemplate} />
          <Route path="/templates/:template/workspace">{(p) => <Create template={p.template} />}</Route>
          <Route path="/templates/:template/versions/:version">
            {(p) => <VersionPage template={p.template} version={p.version} />}
          </Route>
          <Route path="/templates/:template/versions/:version/edit">
            {(p) => <EditVersion template={p.template} version={p.version} />}
          </Route>
          <Route path="/templates/:organization/:template/workspace">
            {(p) => <Create organization={p.organization} template={p.template} />}
          </Route>
          <Route path="/templates/:template/:tab?">{(p) => <TemplatePage name={p.template} tab={p.tab} />}</Route>
          <Route path="/provisioners" component={Provisioners} />
          <Route path="/users" component={Users} />
          <Route path="/organizations">
            <Organizations />
          </Route>
          <Route path="/organizations/new">
            <Organizations create />
          </Route>
          <Route path="/organizations/:organization/groups/:group">{() => <OfOrganization tab="groups" />}</Route>
          <Route path="/organizations/:organization/roles/:role">{() => <OfOrganization tab="roles" />}</Route>
          <Route path="/organizations/:organization/:tab?">
            {(p) => <OrganizationPage name={p.organization} tab={p.tab} />}
          </Route>
          <Route path="/groups/:group?">
            {(p) => (
              <Redirect
                to={p.group ? paths.group("default", p.group) : paths.organization("default", "groups")}
                replace
              />
            )}
          </Route>
          <Route path="/audit" component={Audit} />
          <Route path="/connectionlog" component={ConnectionLog} />
          <Route path="/account" component={Account} />
          <Route path="/notifications" component={Notifications} />
          <Route path="/deployment" component={Deployment} />
          <Route path="/deployment/appearance" component={Appearance} />
          <Route path="/deployment/settings" component={DeploymentSettings} />
          <Route path="/deployment/webhooks" component={Webhooks} />
          <Route path="/deployment/notifications" component={DeploymentNotifications} />
          <Route path="/deployment/regions">
            <Health regions />
          </Route>
          <Route path="/deployment/idp-org-sync">
            <Organizations sync />
          </Route>
          <Route path="/external-auth/:id">{(p) => <ExternalAuth key={p.id} id={p.id} />}</Route>
          <Route path="/health">
            <Health />
          </Route>
          <Route path="/mesh" component={Mesh} />
          <Route path="/downloads" component={Downloads} />
          <Route path="/docs/decisions/:page">{(p) => <Docs page={`decisions/${p.page}`} />}</Route>
          <Route path="/docs/:page?">{(p) => <Docs page={p.page ?? ""} />}</Route>
          <Route path="/cli-auth" component={CliAuth} />
          <Route path="/cli-auth/code" component={CliAuthCode} />
          <Route>
            <NotFound />
          </Route>
        </Switch>
      </Suspense>
    </Boundary>
  );
}

// OfOrganization is the page of a group or a role. It reads the address as it is: the router's parameters are partly
// decoded, and a group's name can contain any character.
function OfOrganization({ tab }: { tab: string }) {
  const [organization = "", , item = ""] = usePathname().split("/").slice(2).map(decoded);
  return <OrganizationPage name={organization} tab={tab} item={item} />;
}

function NotFound() {
  return (
    <Empty page title="Page not found" action={<LinkButton href={paths.workspaces}>Go to your workspaces</LinkButton>}>
      Check the address. The page may have been removed.
    </Empty>
  );
}
