import { useQuery } from "@tanstack/react-query";
import { queries } from "~/api/queries";
import { Suggesting } from "~/components/ui/suggesting";
import { useDebounced } from "~/lib/hooks";

interface UserInputProps {
  label: string;
  name?: string;
  hint?: string;
  organization?: string; // suggests its members only
  value: string;
  onChange: (username: string) => void;
}

// UserInput takes a username and suggests those that the user may see.
export function UserInput({ organization, value, ...rest }: UserInputProps) {
  const rested = useDebounced(value.trim(), 200);
  const members = useQuery({
    ...queries.suggestedMembers(organization ?? "", rested),
    enabled: organization !== undefined,
  });
  const users = useQuery({ ...queries.suggestedUsers(rested), enabled: organization === undefined });
  const found = organization === undefined ? users.data?.users : members.data?.members;
  return (
    <Suggesting
      value={value}
      required
      autoFocus
      offers={(found ?? []).map((u) => ({ value: u.username, about: u.name }))}
      {...rest}
    />
  );
}

// Person shows a user's name, as lists of users do.
export function Person({ user }: { user: { username: string; name?: string; email?: string } }) {
  return (
    <span className="min-w-0">
      <span className="font-medium">{user.username}</span>
      {user.name && <span className="text-muted"> {user.name}</span>}
      {user.email && <span className="block text-[13px] text-muted">{user.email}</span>}
    </span>
  );
}
