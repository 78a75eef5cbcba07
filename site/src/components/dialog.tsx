// Dialogs are the browser's own: it keeps the focus inside, closes on Escape and makes the rest inert.
import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Button, ErrorNote, Input } from "./ui";

export function Dialog({ title, children, onClose }: { title: string; children: ReactNode; onClose: () => void }) {
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
      className="m-auto w-[min(32rem,calc(100vw-2rem))] rounded-lg border border-line bg-panel p-0 text-ink shadow-xl"
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

interface ConfirmProps {
  title: string;
  children: ReactNode;
  action: string;
  danger?: boolean;
  typed?: string; // must be typed first, for what cannot be undone
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}

export function Confirm({ title, children, action, danger, typed, onConfirm, onClose }: ConfirmProps) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const id = useId();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await onConfirm();
      onClose();
    } catch (err) {
      setError(err);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={submit} className="flex flex-col gap-4">
        <div className="text-muted">{children}</div>
        {typed && (
          <div className="flex flex-col gap-1">
            <label htmlFor={id}>
              Type <strong className="font-mono">{typed}</strong> to confirm
            </label>
            <Input
              id={id}
              value={text}
              onChange={(e) => setText(e.target.value)}
              autoComplete="off"
              spellCheck={false}
            />
          </div>
        )}
        <ErrorNote error={error} />
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            look={danger ? "danger" : "primary"}
            busy={busy}
            disabled={typed !== undefined && text !== typed}
          >
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
