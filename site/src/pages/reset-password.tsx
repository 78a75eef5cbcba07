import { useMutation } from "@tanstack/react-query";
import { useLocation, useSearch } from "wouter";
import { send } from "~/api/client";
import { Front } from "~/components/shell/front";
import { Form, TextField, useFields } from "~/components/ui/form";
import { Note } from "~/components/ui/note";
import { useTitle } from "~/lib/hooks";

// ResetPassword mails a passcode, and sets a new password with the one in the address.
export default function ResetPassword() {
  useTitle("Reset your password");
  const otp = new URLSearchParams(useSearch()).get("otp");
  return (
    <Front title="Reset your password">
      <div className="flex flex-col gap-4">
        {otp ? <Change otp={otp} /> : <Ask />}
        <a className="text-center text-[13px] text-muted underline" href="/login">
          Back to the sign-in page
        </a>
      </div>
    </Front>
  );
}

function Ask() {
  const { values, field } = useFields({ email: "" });
  const ask = useMutation({
    mutationFn: () => send("POST users/otp/request", { body: values }),
  });
  if (ask.isSuccess)
    return (
      <Note tone="ok" title="Check your mail">
        If {values.email} belongs to an account with a password, a message with a link is on its way. The link works for
        20 minutes.
      </Note>
    );
  return (
    <Form request={ask} submit="Send me a link" buttons="wide">
      <TextField label="Email" type="email" autoComplete="username" autoFocus required {...field("email")} />
    </Form>
  );
}

function Change({ otp }: { otp: string }) {
  const [, navigate] = useLocation();
  const { values, field } = useFields({ email: "", password: "" });
  const change = useMutation({
    mutationFn: () => send("POST users/otp/change-password", { body: { ...values, one_time_passcode: otp } }),
    onSuccess: () => navigate("/login", { replace: true }),
  });
  return (
    <Form request={change} submit="Set new password" buttons="wide">
      <TextField label="Email" type="email" autoComplete="username" autoFocus required {...field("email")} />
      <TextField
        label="New password"
        type="password"
        autoComplete="new-password"
        required
        hint="At least 8 characters."
        {...field("password")}
      />
    </Form>
  );
}
