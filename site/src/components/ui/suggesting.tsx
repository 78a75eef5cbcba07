import { type ComponentProps, useId } from "react";
import { TextField } from "./form";

interface SuggestingProps extends ComponentProps<typeof TextField> {
  offers: { value: string; about?: string | undefined }[];
}

// Suggesting is a text field that offers texts to choose from: those that the server finds for what is typed.
export function Suggesting({ offers, ...rest }: SuggestingProps) {
  const id = useId();
  return (
    <>
      <TextField list={id} autoComplete="off" spellCheck={false} {...rest} />
      <datalist id={id}>
        {offers.map((o) => (
          <option key={o.value} value={o.value}>
            {o.about}
          </option>
        ))}
      </datalist>
    </>
  );
}
