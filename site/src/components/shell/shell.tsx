// The frame of every page: navigation, the signed-in user and the state of the connection.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import {
  Building2,
  ChevronDown,
  CircleUser,
  Download,
  LogOut,
  Menu as MenuIcon,
  Monitor,
  Moon,
  Search,
  Sun,
} from "lucide-react";
import { type FunctionComponent, lazy, type ReactNode, Suspense, useCallback, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { ApiError, send } from "~/api/client";
import { queries } from "~/api/queries";
import { Avatar } from "~/components/ui/avatar";
import { cx } from "~/components/ui/cx";
import { Icon } from "~/components/ui/icon";
import { IconButton } from "~/components/ui/icon-button";
import { Item, loadMenus, Menu, MenuLabel, Separator } from "~/components/ui/menu";
import { adoptTheme, setTheme, type Theme, useTheme } from "~/components/ui/theme";
import { Toasts } from "~/components/ui/toasts";
import { isOwner, mayReadLogs, mayReadUsers, useMe } from "~/components/ui/user";
import { useAnnounced } from "~/lib/hooks";
import { dialogIsOpen, shortcutOf } from "~/lib/keys";
import { paths } from "~/lib/path";
import { toast } from "~/lib/toasts";
import { ConnectionNote } from "./connection-note";
import { InboxMenu } from "./inbox";
import type { PaletteProps } from "./palette";

const Help = lazy(() => import("./support-links"));
const Banners = lazy(() => import("./banners"));
const Shortcuts = lazy(() => import("~/components/ui/shortcuts"));
const Invitations = lazy(() => import("./invitations"));

const everyone = [
  { to: "/workspaces", label: "Workspaces" },
  { to: "/templates", label: "Templates" },
  { to: "/provisioners", label: "Provisioners" },
  { to: "/mesh", label: "Mesh" },
];

// useAdminPages lists the pages of the Admin menu that the user may open.
function useAdminPages() {
  const me = useMe();
  const administers = useAdministers();
  const owner = isOwner(me);
  const logs = mayReadLogs(me) || administers.logs;
  return [
    { to: paths.deployment, label: "Deployment", shown: owner },
    { to: "/users", label: "Users", shown: mayReadUsers(me) },
    { to: paths.organizations, label: "Organizations", shown: administers.organizations },
    { to: "/health", label: "Health", shown: owner },
    { to: paths.regions, label: "Regions", shown: owner },
    { to: "/audit", label: "Audit", shown: logs },
    { to: "/connectionlog", label: "Connections", shown: logs },
    { to: paths.deploymentNotifications, label: "Notification settings", shown: owner },
    { to: paths.webhooks, label: "Webhooks", shown: owner },
    { to: paths.appearance, label: "Appearance", shown: owner },
    { to: paths.deploymentSettings, label: "Settings", shown: owner },
  ].filter((l) => l.shown);
}

export function Shell({ children }: { children: ReactNode }) {
  const [path] = useLocation();
  const admin = useAdminPages();
  const palette = usePalette();
  const announced = useAnnounced(path);
  const look = useQuery(queries.appearance()).data;
  const banners = look?.announcement_banners.filter((b) => b.enabled) ?? [];
  const invitations = useQuery(queries.invitations()).data ?? [];
  useEffect(() => {
    // If this fails, the first menu that is opened reports it.
    const early = setTimeout(() => loadMenus().catch(() => undefined), 500);
    return () => clearTimeout(early);
  }, []);
  return (
    <>
      <a
        href="#main"
        className={cx(
          "sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2",
          "focus:z-50 focus:rounded focus:bg-panel focus:px-3 focus:py-2",
        )}
      >
        Skip to content
      </a>
      {banners.length > 0 && (
        <Suspense>
          <Banners of={banners} />
        </Suspense>
      )}
      {invitations.length > 0 && (
        <Suspense>
          <Invitations of={invitations} />
        </Suspense>
      )}
      <header className="sticky top-0 z-30 border-b border-line bg-panel">
        <div className="mx-auto flex h-12 max-w-[1440px] items-center gap-1 px-3 sm:px-6">
          <Link href="/workspaces" className="mr-3 flex items-center gap-2 font-semibold tracking-tight">
            <Icon src={look?.logo_url || "/favicon.svg"} name="" className="size-6" />
            <span className="max-w-40 truncate">{look?.application_name ?? "codermesh"}</span>
          </Link>
          <nav aria-label="Main" className="hidden flex-1 gap-1 md:flex">
            {everyone.map((l) => (
              <Link
                key={l.to}
                href={l.to}
                aria-current={isActive(path, l.to) ? "page" : undefined}
                className={navClass(isActive(path, l.to))}
              >
                {l.label}
              </Link>
            ))}
            {admin.length > 0 && (
              <Menu
                align="start"
                trigger={
                  <button type="button" className={navClass(admin.some((l) => isActive(path, l.to)))}>
                    Admin <ChevronDown className="size-4" aria-hidden />
                  </button>
                }
              >
                <Links of={admin} />
              </Menu>
            )}
          </nav>
          <div className="flex-1 md:hidden" />
          <IconButton
            label="Command palette"
            title="Command palette (Ctrl+K); ? lists all shortcuts"
            onClick={palette.open}
          >
            <Search />
          </IconButton>
          <Regions />
          <InboxMenu />
          <ThemeMenu />
          <UserMenu />
          <div className="md:hidden">
            <Menu
              trigger={
                <IconButton label="Pages">
                  <MenuIcon />
                </IconButton>
              }
            >
              <Links of={everyone} />
              {admin.length > 0 && (
                <>
                  <Separator />
                  <MenuLabel>Admin</MenuLabel>
                  <Links of={admin} />
                </>
              )}
            </Menu>
          </div>
        </div>
      </header>
      <ConnectionNote />
      <p role="status" className="sr-only">
        {announced}
      </p>
      <main id="main" tabIndex={-1} className="outline-none">
        {children}
      </main>
      <Toasts />
      {palette.Shown && (
        <palette.Shown pages={[...everyone, ...admin]} onHelp={() => palette.help(true)} onClose={palette.close} />
      )}
      {palette.helping && (
        <Suspense>
          <Shortcuts onClose={() => palette.help(false)} />
        </Suspense>
      )}
    </>
  );
}

const navClass = (active: boolean) =>
  cx(
    "inline-flex items-center gap-1 rounded-md px-2 py-1.5 hover:bg-raised",
    active ? "font-medium text-ink" : "text-muted",
  );

const Links = ({ of }: { of: { to: string; label: string }[] }) =>
  of.map((l) => (
    <Item key={l.to} to={l.to}>
      {l.label}
    </Item>
  ));

// Regions loads the choice of a region once the page is there. Until then, links lead to the server.
function Regions() {
  const [Shown, setShown] = useState<FunctionComponent>();
  useEffect(() => {
    const soon = setTimeout(
      () =>
        void import("./region-menu").then(
          (m) => setShown(() => m.default),
          () => undefined, // the server stays the choice
        ),
      1000,
    );
    return () => clearTimeout(soon);
  }, []);
  return Shown && <Shown />;
}

const loadPalette = () => import("./palette");

// usePalette opens the command palette with Ctrl+K or Cmd+K, the page's search with "/" and the list of shortcuts with
// "?". It loads the palette before that: what a user types after the keys would be lost until it is there.
function usePalette() {
  const [helping, help] = useState(false);
  const [Shown, setShown] = useState<FunctionComponent<PaletteProps> | null>(null);
  const open = useCallback(() => {
    loadPalette().then(
      ({ default: Palette }) => setShown(() => Palette),
      () => toast({ tone: "bad", text: "The command palette could not be loaded. Try again, or reload the page." }),
    );
  }, []);
  const close = useCallback(() => setShown(null), []);
  useEffect(() => {
    const onKeyDown = (e: KeyboardEvent) => {
      const shortcut = shortcutOf(e);
      if (!shortcut) return;
      e.preventDefault();
      const field = document.querySelector<HTMLInputElement>("#main input[type=search]");
      if (shortcut === "help") help(true);
      else if (shortcut === "search" && field) {
        field.focus();
        field.select();
      } else if (!dialogIsOpen()) open();
    };
    document.addEventListener("keydown", onKeyDown);
    // If this fails, open reports it.
    const early = setTimeout(() => loadPalette().catch(() => undefined), 1000);
    return () => {
      document.removeEventListener("keydown", onKeyDown);
      clearTimeout(early);
    };
  }, [open]);
  return { Shown, open, close, helping, help };
}

// useAdministers reports whether the user manages something in an organization or reads all organizations, and whether
// the user reads the logs of any. Other users find their organizations in the menu of their account.
function useAdministers(): { organizations: boolean; logs: boolean } {
  const { logs = false, ...rest } = useQuery(queries.mayAnywhere()).data ?? {};
  return { organizations: Object.values(rest).includes(true), logs };
}

const isActive = (path: string, to: string) =>
  path === to || path.startsWith(`${to}/`) || (to === "/workspaces" && path.startsWith("/@"));

const themes: { theme: Theme; label: string; icon: ReactNode }[] = [
  { theme: "light", label: "Light", icon: <Sun /> },
  { theme: "dark", label: "Dark", icon: <Moon /> },
  { theme: "system", label: "System", icon: <Monitor /> },
];

function ThemeMenu() {
  const theme = useTheme();
  const stored = useQuery(queries.userAppearance()).data?.theme_preference;
  useEffect(() => adoptTheme(stored), [stored]);
  return (
    <Menu trigger={<IconButton label="Theme">{themes.find((t) => t.theme === theme)?.icon}</IconButton>}>
      {themes.map((t) => (
        <Item key={t.theme} icon={t.icon} onSelect={() => setTheme(t.theme)}>
          {t.label}
        </Item>
      ))}
    </Menu>
  );
}

function UserMenu() {
  const me = useMe();
  const info = useQuery(queries.buildInfo());
  const administers = useAdministers();
  const client = useQueryClient();
  const signOut = async () => {
    try {
      await send("POST users/logout");
    } catch (err) {
      // A session that has ended is no reason to stay; one that goes on must not look as if it had ended.
      if (!(err instanceof ApiError) || err.status !== 401)
        return toast({ tone: "bad", text: `You are still signed in. ${(err as Error).message}` });
    }
    client.clear();
    location.assign("/login");
  };
  return (
    <Menu
      trigger={
        <button type="button" aria-label={`Account of ${me.username}`} className="rounded-full">
          <Avatar name={me.username} />
        </button>
      }
    >
      <MenuLabel>
        {me.name || me.username}
        <br />
        {me.email}
      </MenuLabel>
      <Separator />
      <Item to="/account" icon={<CircleUser />}>
        Account and tokens
      </Item>
      {!administers.organizations && (
        <Item to={paths.organizations} icon={<Building2 />}>
          Organizations and groups
        </Item>
      )}
      <Item to={paths.downloads} icon={<Download />}>
        Downloads
      </Item>
      <Suspense>
        <Help />
      </Suspense>
      <Item onSelect={() => void signOut()} icon={<LogOut />}>
        Sign out
      </Item>
      <Separator />
      <MenuLabel>{info.data?.version ?? "codermesh"}</MenuLabel>
    </Menu>
  );
}
