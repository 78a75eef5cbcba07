import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Redirect, useLocation, useSearch } from "wouter";
import { send, setLink, useLink } from "~/api/client";
import { queries } from "~/api/queries";
import type { AuthMethods } from "~/api/types";
import { ConnectionNote } from "~/components/shell/connection-note";
import { Front } from "~/components/shell/front";
import { Button, buttonClass } from "~/components/ui/button";
import { ErrorNote } from "~/components/ui/error-note";
import { Form, TextField, useFields } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { Note } from "~/components/ui/note";
import { useTitle } from "~/lib/hooks";
import { paths, safeReturn } from "~/lib/path";

export default function Login() {
  useTitle("Sign in");
  const client = useQueryClient();
  const first = useQuery(queries.firstUser());
  const methods = useQuery(queries.authMethods());
  const look = useQuery(queries.appearance()).data;
  const { why } = useLink();
  const [, navigate] = useLocation();
  const search = useSearch();
  const back = safeReturn(search);
  const { values, field } = useFields({ email: "", password: "" });
  const [accepted, accept] = useState(acceptedTerms);
  const login = useMutation({
    mutationFn: () => send("POST users/login", { body: values }),
    onSuccess: async () => {
      client.clear(); // another user may sign in
      setLink({ session: "unknown", why: "", server: "ok" });
      // An app's address is the server's, not one of the dashboard's pages.
      if (/^\/@[^/]+\/[^/]+\/apps\//.test(back) || back.startsWith("/api/")) location.assign(back);
      else navigate(back, { replace: true });
    },
  });
  if (first.data === false) return <Redirect to="/setup" replace />;
  const terms = methods.data?.terms_of_service_url;
  if (terms && accepted !== terms)
    return (
      <Front title={`Sign in to ${look?.application_name ?? "codermesh"}`}>
        <Terms
          url={terms}
          onAccept={() => {
            accept(terms);
            keepTerms(terms);
          }}
        />
      </Front>
    );
  const elsewhere = methods.data && (methods.data.oidc.enabled || methods.data.github.enabled);
  // Owners keep their passwords where those of others are switched off.
  const onlyOwners = methods.data && !methods.data.password.enabled;
  const form = (
    <Form request={login} submit="Sign in" buttons="wide">
      {search.includes("redirect=") && !login.error && (
        <p className="text-muted">Sign in to return to the page you opened.</p>
      )}
      <TextField label="Email" type="email" autoComplete="username" autoFocus required {...field("email")} />
      <TextField label="Password" type="password" autoComplete="current-password" required {...field("password")} />
      <ErrorNote error={first.error ?? methods.error} />
    </Form>
  );
  return (
    <>
      <ConnectionNote />
      <Front title={`Sign in to ${look?.application_name ?? "codermesh"}`}>
        <div className="flex flex-col gap-4">
          {why && !login.error && <Note tone="warn">{why}</Note>}
          {methods.data && elsewhere && (
            <>
              <Providers methods={methods.data} back={back} />
              <hr className="border-line" />
            </>
          )}
          {onlyOwners ? (
            <details>
              <summary className="cursor-pointer text-muted">Sign in with a password (owners only)</summary>
              <div className="mt-3">{form}</div>
            </details>
          ) : (
            form
          )}
          {!onlyOwners && (
            <a className="text-center text-[13px] text-muted underline" href={paths.forgot}>
              Forgot your password?
            </a>
          )}
        </div>
      </Front>
    </>
  );
}

const termsKey = "accepted-terms";

// acceptedTerms returns the address of the terms that were accepted in this browser.
function acceptedTerms(): string {
  try {
    return localStorage.getItem(termsKey) ?? "";
  } catch {
    return "";
  }
}

function keepTerms(url: string) {
  try {
    localStorage.setItem(termsKey, url);
  } catch {
    // They are accepted until the page is closed.
  }
}

// Terms asks to accept the operator's terms of service before a sign-in.
const Terms = ({ url, onAccept }: { url: string; onAccept: () => void }) => (
  <div className="flex flex-col gap-4">
    <p>
      Before you sign in, read and accept the{" "}
      <a className="text-accent underline" href={url} target="_blank" rel="noopener noreferrer">
        terms of service
      </a>
      .
    </p>
    <Button look="primary" onClick={onAccept}>
      I accept the terms of service
    </Button>
  </div>
);

// Providers are the buttons that lead to the identity providers.
function Providers({ methods, back }: { methods: AuthMethods; back: string }) {
  const query = back === "/" ? "" : `?redirect=${encodeURIComponent(back)}`;
  return (
    <div className="flex flex-col gap-2">
      {methods.oidc.enabled && (
        <a className={buttonClass("primary")} href={paths.signIn.oidc + query}>
          {methods.oidc.iconUrl && <Icon src={methods.oidc.iconUrl} name="" />}
          {`Sign in with ${methods.oidc.signInText || "OpenID Connect"}`}
        </a>
      )}
      {methods.github.enabled && (
        <a className={buttonClass(methods.oidc.enabled ? "plain" : "primary")} href={paths.signIn.github + query}>
          Sign in with GitHub
        </a>
      )}
    </div>
  );
}
