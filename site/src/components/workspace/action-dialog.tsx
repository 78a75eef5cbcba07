// The questions before workspaces are stopped, restarted or deleted. UpdateDialog asks before an update.
import { Confirm } from "~/components/ui/dialog";
import type { Asked } from "./actions";

interface Question {
  title: (name: string) => string;
  button: string;
  danger?: boolean; // the workspace's name must be typed
  text: string;
}

const questions: Record<Exclude<Asked, "update">, Question> = {
  stop: {
    title: (name) => `Stop ${name}?`,
    button: "Stop",
    text: "Running programs stop. Files that the template keeps, usually the home folder, remain.",
  },
  restart: {
    title: (name) => `Restart ${name}?`,
    button: "Restart",
    text:
      "Stops the workspace and starts it again. Running programs and sessions end. " +
      "Files that the template keeps, usually the home folder, remain.",
  },
  delete: {
    title: (name) => `Delete ${name}?`,
    button: "Delete",
    danger: true,
    text: "Destroys all its resources, including files. This cannot be undone.",
  },
  forget: {
    title: (name) => `Delete ${name} without destroying its resources?`,
    button: "Delete",
    danger: true,
    text: "Removes the workspace, but its resources keep running. You must delete them yourself.",
  },
};

interface Props {
  name: string; // of the workspace
  action: Exclude<Asked, "update">;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}

export default function ActionDialog({ name, action, ...rest }: Props) {
  const question = questions[action];
  return (
    <Confirm
      title={question.title(name)}
      action={question.button}
      {...(question.danger ? { danger: true, typed: name } : {})}
      {...rest}
    >
      {question.text}
    </Confirm>
  );
}
