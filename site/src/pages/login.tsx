import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Redirect, useLocation, useSearch } from "wouter";
import { send, setLink } from "~/api/client";
import { queries } from "~/api/queries";
import type { LoginRequest } from "~/api/types";
import { Form, TextField, useFields } from "~/components/form";
import { Front } from "~/components/front";
import { ErrorNote } from "~/components/ui";
import { useTitle } from "~/lib/hooks";
import { safeReturn } from "~/lib/path";

export default function Login() {
  useTitle("Sign in");
  const client = useQueryClient();
  const first = useQuery(queries.firstUser());
  const [, navigate] = useLocation();
  const search = useSearch();
  const back = safeReturn(search);
  const { values, field } = useFields({ email: "", password: "" });
  const login = useMutation({
    mutationFn: () => send("POST", "users/login", values satisfies LoginRequest),
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
      <Form request={login} submit="Sign in" buttons="wide">
        {search.includes("redirect=") && !login.error && (
          <p className="text-muted">Sign in to return to the page you opened.</p>
        )}
        <TextField label="Email" type="email" autoComplete="username" autoFocus required {...field("email")} />
        <TextField label="Password" type="password" autoComplete="current-password" required {...field("password")} />
        <ErrorNote error={first.error} />
      </Form>
    </Front>
  );
}
