import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Redirect, useLocation } from "wouter";
import { send, setLink } from "~/api/client";
import { queries } from "~/api/queries";
import type { CreateFirstUserRequest, LoginRequest } from "~/api/types";
import { Front } from "~/components/front";
import { Button, ErrorNote, fieldError, TextField } from "~/components/ui";
import { useTitle } from "~/lib/hooks";

export default function Setup() {
  useTitle("First user");
  const client = useQueryClient();
  const first = useQuery(queries.firstUser());
  const [, navigate] = useLocation();
  const [form, setForm] = useState({ email: "", username: "", name: "", password: "" });
  const set = (key: keyof typeof form) => (value: string) => setForm((f) => ({ ...f, [key]: value }));
  const create = useMutation({
    mutationFn: async () => {
      await send("POST", "users/first", { ...form, trial: false } satisfies CreateFirstUserRequest);
      await send("POST", "users/login", { email: form.email, password: form.password } satisfies LoginRequest);
    },
    onSuccess: () => {
      client.clear();
      setLink({ session: "unknown", server: "ok" });
      navigate("/", { replace: true });
    },
  });
  if (first.data === true && !create.isPending) return <Redirect to="/login" replace />;
  const error = (field: string) => fieldError(create.error, field);
  return (
    <Front title="Set up codermesh">
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          create.mutate();
        }}
      >
        <p className="text-muted">This server has no users yet. The first one owns the deployment.</p>
        <TextField
          label="Email"
          type="email"
          autoComplete="email"
          autoFocus
          required
          value={form.email}
          onChange={set("email")}
          error={error("email")}
        />
        <TextField
          label="Username"
          autoComplete="username"
          required
          pattern="[A-Za-z0-9]+(-[A-Za-z0-9]+)*"
          maxLength={32}
          value={form.username}
          onChange={set("username")}
          error={error("username")}
          hint="Letters, digits and single hyphens. Part of your workspaces' addresses."
        />
        <TextField
          label="Full name"
          autoComplete="name"
          value={form.name}
          onChange={set("name")}
          error={error("name")}
        />
        <TextField
          label="Password"
          type="password"
          autoComplete="new-password"
          required
          value={form.password}
          onChange={set("password")}
          error={error("password")}
          hint="At least 8 characters."
        />
        <ErrorNote error={create.error ?? first.error} />
        <Button type="submit" look="primary" busy={create.isPending}>
          Create the first user
        </Button>
      </form>
    </Front>
  );
}
