import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Redirect, useLocation } from "wouter";
import { send, setLink } from "~/api/client";
import { queries } from "~/api/queries";
import { Front } from "~/components/shell/front";
import { ErrorNote } from "~/components/ui/error-note";
import { Form, TextField, useFields } from "~/components/ui/form";
import { useTitle } from "~/lib/hooks";

export default function Setup() {
  useTitle("Set up");
  const client = useQueryClient();
  const first = useQuery(queries.firstUser());
  const [, navigate] = useLocation();
  const { values, field } = useFields({ setup_code: "", email: "", username: "", name: "", password: "" });
  const create = useMutation({
    mutationFn: async () => {
      await send("POST users/first", { body: { ...values, trial: false } });
      await send("POST users/login", { body: { email: values.email, password: values.password } });
    },
    onSuccess: () => {
      client.clear();
      setLink({ session: "unknown", why: "", server: "ok" });
      navigate("/", { replace: true });
    },
  });
  if (first.data === true && !create.isPending) return <Redirect to="/login" replace />;
  return (
    <Front title="Set up codermesh">
      <Form request={create} submit="Create first user" buttons="wide">
        <p className="text-muted">This server has no users yet. The first user becomes the owner of the deployment.</p>
        <TextField
          label="Setup code"
          autoComplete="off"
          autoFocus
          required
          hint="The server printed it when it started, and keeps it in the file setup-code of its configuration folder."
          {...field("setup_code")}
        />
        <TextField label="Email" type="email" autoComplete="email" required {...field("email")} />
        <TextField
          label="Username"
          autoComplete="username"
          required
          pattern="[A-Za-z0-9]+(-[A-Za-z0-9]+)*"
          title="Use letters, digits and single hyphens."
          maxLength={32}
          hint="Letters, digits and single hyphens. Part of your workspaces' addresses."
          {...field("username")}
        />
        <TextField label="Full name" autoComplete="name" {...field("name")} />
        <TextField
          label="Password"
          type="password"
          autoComplete="new-password"
          required
          hint="At least 8 characters."
          {...field("password")}
        />
        <ErrorNote error={first.error} />
      </Form>
    </Front>
  );
}
