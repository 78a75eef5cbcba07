// Toasts: short messages about what happened out of sight. Errors stay until they are dismissed.
import { useSyncExternalStore } from "react";
import { ApiError } from "~/api/client";

export interface Toast {
  id: number;
  tone: "ok" | "bad";
  text: string;
  to?: string; // a page that says more
}

const stay = 6_000; // ms that a success is shown
const most = 5; // at the same time: older ones make room

let toasts: readonly Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function set(next: readonly Toast[]) {
  toasts = next;
  for (const listener of listeners) listener();
}

export const dismiss = (id: number) => set(toasts.filter((t) => t.id !== id));

export function toast(message: Omit<Toast, "id">) {
  const id = ++last;
  set([...toasts, { ...message, id }].slice(-most));
  if (message.tone === "ok") setTimeout(() => dismiss(id), stay);
}

// messageOf is all that the server says about an error.
export function messageOf(err: unknown): string {
  if (!(err instanceof ApiError)) return err instanceof Error ? err.message : String(err);
  return [err.message, err.detail, ...err.validations.map((v) => `${v.field}: ${v.detail}`)].filter(Boolean).join(" ");
}

export function useToasts(): readonly Toast[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
}
