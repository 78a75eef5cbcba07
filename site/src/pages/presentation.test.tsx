// What an operator tells users: terms before the sign-in, and the settings that owners read.
// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it } from "vitest";
import { queries } from "~/api/queries";
import type { DeploymentOption, User } from "~/api/types";
import { UserContext } from "~/components/ui/user";
import DeploymentSettings from "./deployment-settings";
import Login from "./login";

let client: QueryClient;

beforeEach(() => {
  client = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: Infinity } } });
  localStorage.clear();
});

afterEach(() => {
  cleanup();
  client.clear();
});

const show = (page: ReactNode) => render(<QueryClientProvider client={client}>{page}</QueryClientProvider>);

const offer = (terms?: string) => {
  client.setQueryData(queries.firstUser().queryKey, true);
  client.setQueryData(queries.appearance().queryKey, {
    application_name: "Acme",
    logo_url: "",
    docs_url: "",
    service_banner: { enabled: false },
    announcement_banners: [],
    support_links: [],
  });
  client.setQueryData(queries.authMethods().queryKey, {
    ...(terms && { terms_of_service_url: terms }),
    password: { enabled: true },
    github: { enabled: true, default_provider_configured: false },
    oidc: { enabled: false, signInText: "", iconUrl: "" },
  });
};

it("offers no way to sign in before the terms are accepted, and asks again for others", () => {
  offer("https://example.com/terms");
  const first = show(<Login />);
  expect(screen.queryByLabelText("Password")).toBeNull();
  expect(screen.queryByRole("link", { name: /GitHub/ })).toBeNull();
  const link = screen.getByRole("link", { name: "terms of service" });
  expect(link.getAttribute("href")).toBe("https://example.com/terms");
  expect(link.getAttribute("rel")).toContain("noopener");
  fireEvent.click(screen.getByRole("button", { name: /I accept/ }));
  screen.getByLabelText("Password");
  first.unmount();

  const second = show(<Login />);
  screen.getByLabelText("Password");
  second.unmount();

  offer("https://example.com/terms-2");
  show(<Login />);
  expect(screen.queryByLabelText("Password")).toBeNull();
});

it("asks nothing without terms", () => {
  offer();
  show(<Login />);
  screen.getByLabelText("Password");
});

const option = (flag: string, more: Partial<DeploymentOption>): DeploymentOption => ({
  name: `group.${flag}`,
  description: `about ${flag}`,
  flag,
  env: `CODER_${flag.toUpperCase()}`,
  yaml: flag,
  default: "",
  value: "",
  value_source: "default",
  annotations: {},
  ...more,
});

const as = (role: string) => ({ roles: [{ name: role }] }) as unknown as User;

const options = [
  option("docs-url", { value: "https://docs.example.com", value_source: "env" }),
  option("scim-auth-header", { value_source: "yaml", annotations: { secret: "true" } }),
  option("trace", { value: "false" }),
];

it("shows owners each setting and its source, and no secret", () => {
  client.setQueryData(queries.deploymentConfig().queryKey, { config: {}, options });
  show(
    <UserContext value={as("owner")}>
      <DeploymentSettings />
    </UserContext>,
  );
  screen.getByText("https://docs.example.com");
  screen.getByText("environment");
  screen.getByText("set; secrets are not shown");
  fireEvent.change(screen.getByLabelText("Search settings"), { target: { value: "SCIM about" } });
  screen.getByText("--scim-auth-header");
  expect(screen.queryByText("--docs-url")).toBeNull();
  fireEvent.change(screen.getByLabelText("Search settings"), { target: { value: "" } });
  fireEvent.click(screen.getByLabelText("Only those that are set"));
  screen.getByText("--docs-url");
  expect(screen.queryByText("--trace")).toBeNull();
});

it("shows members nothing of them", () => {
  client.setQueryData(queries.deploymentConfig().queryKey, { config: {}, options });
  show(
    <UserContext value={as("member")}>
      <DeploymentSettings />
    </UserContext>,
  );
  screen.getByText(/Only owners/);
  expect(screen.queryByText("--docs-url")).toBeNull();
});
