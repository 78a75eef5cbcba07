import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Redirect, useLocation, useSearch } from "wouter";
import { send, setLink } from "~/api/client";
import { queries } from "~/api/queries";
import type { LoginRequest } from "~/api/types";
import { Front } from "~/components/front";
import { Button, ErrorNote, TextField } from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { safeReturn } from "~/lib/path";

export default function Login() {
  useTitle("Sign in");
  const client = useQueryClient();
  const first = useQuery(queries.firstUser());
  const [, navigate] = useLocation();
  const search = useSearch();
  const back = safeReturn(search);
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const login = useMutation({
    mutationFn: () => send("POST", "users/login", { email, password } satisfies LoginRequest),
    onSuccess: async () => {
      client.clear(); // another user may sign in
      setLink({ session: "unknown", server: "ok" });
      // An app's address is the server's, not one of the dashboard's pages.
      if (/^\/@[^/]+\/[^/]+\/apps\//.test(back) || back.startsWith("/api/")) location.assign(back);
      else navigate(back, { replace: true });
    },
  });
  if (first.data === false) return <Redirect to="/setup" replace />;
  return (
    <Front title="Sign in to codermesh">
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          login.mutate();
        }}
      >
        {search.includes("redirect=") && !login.error && (
          <p className="text-muted">Sign in to continue where you were.</p>
        )}
        <TextField
          label="Email"
          type="email"
          name="email"
          autoComplete="username"
          autoFocus
          required
          value={email}
          onChange={setEmail}
        />
        <TextField
          label="Password"
          type="password"
          name="password"
          autoComplete="current-password"
          required
          value={password}
          onChange={setPassword}
        />
        <ErrorNote error={login.error ?? first.error} />
        <Button type="submit" look="primary" busy={login.isPending}>
          Sign in
        </Button>
      </form>
    </Front>
  );
}
