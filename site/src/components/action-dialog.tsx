// The questions before workspaces are stopped, updated or deleted.
import type { Action } from "~/api/actions";
import { Confirm } from "./dialog";

interface Question {
  title: (name: string) => string;
  button: string;
  danger?: boolean; // the workspace's name must be typed
  text: string;
}

export type Asked = Extract<Action, "stop" | "update" | "delete" | "forget">;

const questions: Record<Asked, Question> = {
  stop: {
    title: (name) => `Stop ${name}?`,
    button: "Stop",
    text: "Running programs stop. Files that the template keeps, usually the home folder, remain.",
  },
  update: {
    title: (name) => `Update ${name}?`,
    button: "Update",
    text: "Rebuilds the workspace from the active version with the same parameters. Running programs may stop.",
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
  action: Asked;
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
