// Dialogs use the dialog element: the browser keeps the focus inside, closes on Escape and makes the rest inert.
import { useMutation } from "@tanstack/react-query";
import { type ComponentProps, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Button } from "./button";
import { cx } from "./cx";
import { Form, TextField } from "./form";

interface DialogProps {
  title: string;
  wide?: boolean | undefined; // for what is read before it is answered
  children: ReactNode;
  onClose: () => void;
}

function Dialog({ title, wide, children, onClose }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      aria-labelledby={id}
      onClose={onClose}
      onMouseDown={(e) => e.target === ref.current && ref.current.close()}
      className={cx(
        "m-auto rounded-lg border border-line bg-panel p-0 text-ink shadow-xl",
        wide ? "w-[min(56rem,calc(100vw-2rem))]" : "w-[min(32rem,calc(100vw-2rem))]",
      )}
    >
      <div className="flex flex-col gap-4 p-5">
        <h2 id={id} className="text-base font-semibold">
          {title}
        </h2>
        {children}
      </div>
    </dialog>
  );
}

// FormDialog is a dialog with a form.
export function FormDialog({
  title,
  wide,
  onClose,
  ...form
}: Omit<DialogProps, "children"> & Omit<ComponentProps<typeof Form>, "buttons" | "cancel">) {
  return (
    <Dialog title={title} wide={wide} onClose={onClose}>
      <Form {...form} buttons="end" cancel={<Button onClick={onClose}>Cancel</Button>} />
    </Dialog>
  );
}

// DoneDialog shows the result of a form, such as a secret that is shown once.
export function DoneDialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      <div className="flex justify-end">
        <Button look="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  );
}

interface ConfirmProps {
  title: string;
  children: ReactNode;
  action: string;
  danger?: boolean;
  typed?: string; // the text that the user must type first, for what cannot be undone
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}

// Confirm asks before something is done.
export function Confirm({ title, children, action, danger, typed, onConfirm, onClose }: ConfirmProps) {
  const [text, setText] = useState("");
  const request = useMutation({ mutationFn: onConfirm, onSuccess: onClose });
  return (
    <FormDialog
      title={title}
      request={request}
      submit={action}
      danger={danger ?? false}
      disabled={typed !== undefined && text !== typed}
      onClose={onClose}
    >
      <div className="text-muted">{children}</div>
      {typed && (
        <TextField
          label={
            <span className="font-normal">
              Type <strong className="font-mono">{typed}</strong> to confirm
            </span>
          }
          value={text}
          onChange={setText}
          autoComplete="off"
          spellCheck={false}
        />
      )}
    </FormDialog>
  );
}
