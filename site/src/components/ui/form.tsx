// Forms: the request that a form sends, its fields, its error and its buttons.
import { type ComponentProps, createContext, type ReactNode, useContext, useId, useRef, useState } from "react";
import { ApiError } from "~/api/client";
import { sentence } from "~/lib/format";
import { Button } from "./button";
import { cx } from "./cx";
import { ErrorNote } from "./error-note";
import { Input } from "./input";

export { Input, inputClass, Select } from "./input";

// Request is what a form sends when it is submitted: a mutation without variables.
interface Request {
  mutate: () => void;
  isPending: boolean;
  isSuccess: boolean;
  error: unknown;
}

// The error of the request of the form around a field.
const RequestError = createContext<unknown>(null);

const useFieldError = (field: string | undefined) => {
  const error = useContext(RequestError);
  const detail = error instanceof ApiError ? error.validations.find((v) => v.field === field)?.detail : undefined;
  return detail === "is taken" ? (error as ApiError).message : detail; // the message says by what
};

interface FormProps extends Omit<ComponentProps<"form">, "action" | "onSubmit"> {
  request: Request;
  submit: ReactNode; // the button's text
  done?: string; // shown beside the button when the request has succeeded
  danger?: boolean;
  disabled?: boolean;
  cancel?: ReactNode; // the button or link that leaves the form
  buttons?: "start" | "end" | "wide";
}

// Form sends its request instead of loading a page. It shows the request's error at the field that the error names, and
// above the buttons.
export function Form({
  request,
  submit,
  done,
  danger,
  disabled,
  cancel,
  buttons = "start",
  className,
  children,
  ...rest
}: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  return (
    <RequestError value={request.error}>
      <form
        ref={form}
        className={cx("flex flex-col gap-4", className)}
        onSubmit={(e) => {
          e.preventDefault();
          request.mutate();
        }}
        {...rest}
      >
        {children}
        <ErrorNote error={request.error} except={(field) => Boolean(form.current?.elements.namedItem(field))} />
        <div className={cx("flex gap-2", buttons === "wide" ? "flex-col" : "items-center", barClass[buttons])}>
          {buttons === "end" && cancel}
          <Button type="submit" look={danger ? "danger" : "primary"} busy={request.isPending} disabled={disabled}>
            {submit}
          </Button>
          {buttons !== "end" && cancel}
          {done && (
            <span role="status" className="ml-1 text-ok">
              {request.isSuccess && done}
            </span>
          )}
        </div>
      </form>
    </RequestError>
  );
}

const barClass = { start: "", end: "justify-end", wide: "" };

// useFields keeps the texts of a form's fields. field(key) is what the TextField of that name needs.
export function useFields<T extends Record<string, string>>(initial: T) {
  const [values, set] = useState(initial);
  const field = (key: keyof T & string) => ({
    name: key,
    value: values[key] ?? "",
    onChange: (text: string) => set((old) => ({ ...old, [key]: text })),
  });
  return { values, field, reset: () => set(initial) };
}

interface FieldProps {
  name?: string | undefined; // as the API calls it: errors of that name are shown here
  label: ReactNode;
  hint?: ReactNode;
  children: (props: {
    id: string;
    name: string | undefined;
    "aria-describedby": string | undefined;
    "aria-invalid": boolean | undefined;
  }) => ReactNode;
}

// Field puts a label, an explanation and an error around one input.
export function Field({ name, label, hint, children }: FieldProps) {
  const id = useId();
  const error = useFieldError(name);
  const described = hint || error ? `${id}-more` : undefined;
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="font-medium">
        {label}
      </label>
      {children({ id, name, "aria-describedby": described, "aria-invalid": error ? true : undefined })}
      {described && (
        <div id={described} className="text-[13px]">
          {error && <div className="text-bad">{sentence(error)}</div>}
          {hint && <div className="text-muted">{hint}</div>}
        </div>
      )}
    </div>
  );
}

interface SearchInputProps extends Omit<ComponentProps<"input">, "onChange"> {
  label: string;
  onChange: (value: string) => void;
}

// SearchInput filters a list. Its label is for screen readers.
export const SearchInput = ({ label, onChange, ...rest }: SearchInputProps) => (
  <Input type="search" aria-label={label} onChange={(e) => onChange(e.target.value)} className="max-w-sm" {...rest} />
);

interface TextFieldProps extends Omit<ComponentProps<"input">, "onChange" | "value"> {
  label: ReactNode;
  hint?: ReactNode;
  value: string;
  onChange: (value: string) => void;
}

export function TextField({ name, label, hint, onChange, ...rest }: TextFieldProps) {
  return (
    <Field name={name} label={label} hint={hint}>
      {(props) => <Input {...props} onChange={(e) => onChange(e.target.value)} {...rest} />}
    </Field>
  );
}

interface CheckboxProps extends Omit<ComponentProps<"input">, "onChange"> {
  label: ReactNode;
  hint?: ReactNode;
  onChange: (checked: boolean) => void;
}

// Checkbox is a box with its label beside it.
export function Checkbox({ label, hint, onChange, className, ...rest }: CheckboxProps) {
  return (
    <label className={cx("flex items-start gap-2", className)}>
      <input
        type="checkbox"
        className="mt-1 shrink-0 accent-fill"
        onChange={(e) => onChange(e.target.checked)}
        {...rest}
      />
      <span className="min-w-0">
        {label}
        {hint && <span className="block text-[13px] text-muted">{hint}</span>}
      </span>
    </label>
  );
}

interface ChoiceProps extends ComponentProps<"input"> {
  type: "radio" | "checkbox";
  icon?: ReactNode;
  title: string;
  mark?: ReactNode; // beside the title
  about: string;
  children?: ReactNode; // below
}

// Choice is one of several radio buttons or checkboxes, drawn as a card.
export function Choice({ icon, title, mark, about, children, ...rest }: ChoiceProps) {
  return (
    <label
      className={cx(
        "flex items-start gap-2.5 rounded-md border border-line px-3 py-2 hover:bg-raised",
        "has-checked:border-accent has-checked:bg-accent-soft has-disabled:opacity-60",
      )}
    >
      <input className="mt-1 accent-fill" {...rest} />
      {icon}
      <span className="min-w-0">
        {title}
        {mark && <> {mark}</>}
        {about && <span className="block text-[13px] text-muted">{about}</span>}
        {children}
      </span>
    </label>
  );
}
