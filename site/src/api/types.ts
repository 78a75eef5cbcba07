// What the API's answers look like: generated from the server's own types, and what those leave open.
import type * as gen from "./types.gen";

export type * from "./types.gen";

// A parameter's styling is the template's word, of which a form understands this much.
interface Styling {
  placeholder?: string;
  disabled?: boolean;
  label?: string;
  mask_input?: boolean;
}

export type PreviewParameter = Omit<gen.PreviewParameter, "styling"> & { styling: Styling | null };
export type EvaluateParametersResponse = Omit<gen.EvaluateParametersResponse, "parameters"> & {
  parameters: PreviewParameter[];
};
