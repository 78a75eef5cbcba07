// The types of the API: generated from the server's own, and refined where those are loose.
import type * as gen from "./types.gen";

export type * from "./types.gen";

// Styling is the part of a parameter's styling that the form understands.
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
